#!/bin/sh
# Tests each front against the package it is for, in an environment of its own: they exclude each
# other. `scripts/fronts.sh openenv` does one; without a name all. Environments are kept in .fronts.
# The page of docs/ with commands that need the package is run there, too.
set -eu
cd "$(dirname "$0")/.."

failed=
# A Python that Harbor runs on, if there is one: PYTHON312 names another.
newer() {
    for python in ${PYTHON312:-.venv/bin/python python3.14 python3.13 python3.12}; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo "$python" && return
    done
    return 1
}

for front in ${*:-openai openenv inspect verifiers trl harbor rllib}; do
    export PYTHON=.venv/bin/python
    if [ "$front" = harbor ] && ! PYTHON=$(newer); then
        echo "== harbor: left out, it needs Python 3.12 or newer (PYTHON312 names one)"
        continue
    fi
    home=.fronts/$front
    case $front in
    trl | rllib) first=torch==2.13.0 ;; # a build for the processor alone would need an index of its own
    openai) first='openai>=1.50' ;; # the client
    *) first= ;;
    esac
    case $front in
    openai) page=docs/how-to/serve.md ;;
    openenv) page=docs/how-to/agents.md ;;
    rllib) page=docs/tutorial/reinforcement-learning.md ;;
    *) page= ;; # others' commands need a language model
    esac
    scripts/environment.sh "$home" "$front" $first
    echo "== $front"
    "$home/bin/python" -m pytest -q tests/fronts/test_"$front"*.py || failed="$failed $front"
    [ -z "$page" ] || "$home/bin/python" scripts/docs_test.py "$page" || failed="$failed $page"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
