#!/bin/sh
# Tests each front against the package it is for, in an environment of its own: they exclude each
# other. `scripts/fronts.sh openenv` does one; without a name all. Environments are kept in .fronts.
# `harbor` is each minor version that shioenv-agents allows; `harbor-0.25` is one of them.
# The page of docs/ with commands that need the package is run there, too.
set -eu
cd "$(dirname "$0")/.."

failed=
# A Python that Harbor and NeMo Gym run on, if there is one: PYTHON312 names another.
newer() {
    for python in ${PYTHON312:-.venv/bin/python python3.14 python3.13 python3.12}; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo "$python" && return
    done
    return 1
}

# A name for each minor version of Harbor that the extra's range `>=0.A,<0.B` holds.
harbors() {
    file=packages/shioenv-agents/pyproject.toml
    range=$(sed -n 's/^harbor = \["harbor>=0\.\([0-9]*\),<0\.\([0-9]*\);.*/\1 $((\2 - 1))/p' $file)
    eval "seq -f harbor-0.%g ${range:?$file has no range of minor versions for Harbor}"
}

fronts=
for front in ${*:-openai openenv mcp e2b inspect verifiers trl harbor nemo rllib torchrl}; do
    [ "$front" != harbor ] || front=$(harbors)
    fronts="$fronts $front"
done

for front in $fronts; do
    export PYTHON=.venv/bin/python
    name=${front%%-*}
    case $name in
    harbor | nemo)
        if ! PYTHON=$(newer); then
            echo "== $front: left out, it needs Python 3.12 or newer (PYTHON312 names one)"
            continue
        fi
        ;;
    esac
    home=.fronts/$front
    case $front in
    trl | rllib) first=torch==2.13.0 ;; # a build for the processor alone would need an index of its own
    torchrl) first='torch==2.13.0 torchrl' ;; # the newest
    openai) first='openai>=1.50' ;; # the client
    harbor-*) first="harbor==${front#*-}.*" ;;
    *) first= ;;
    esac
    case $front in
    openai) page=docs/how-to/serve.md ;;
    openenv) page=docs/how-to/agents.md ;;
    mcp) page=docs/how-to/mcp.md ;;
    e2b) page=docs/how-to/e2b.md ;;
    rllib | torchrl) page=docs/tutorial/reinforcement-learning.md ;;
    *) page= ;; # others' commands need a language model
    esac
    if [ "$name" = nemo ]; then # its sandboxes need none of its many requirements
        scripts/environment.sh "$home" agents
        "$home/bin/python" -m pip install -q --disable-pip-version-check --no-deps 'nemo-gym==0.4.*'
    elif [ "$name" = torchrl ]; then # no extra of ours
        scripts/environment.sh "$home" agents $first
    else
        scripts/environment.sh "$home" "$name" $first
    fi
    echo "== $front"
    "$home/bin/python" -m pytest -q $(find packages/*/tests/fronts tests/journeys -name "test_$name*.py") || failed="$failed $front"
    [ -z "$page" ] || "$home/bin/python" scripts/docs_test.py "$page" || failed="$failed $page"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
