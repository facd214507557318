#!/bin/sh
# Tests each front against the package it is for, in an environment of its own: they exclude each
# other. `scripts/fronts.sh openenv` does one; without a name all. Environments are kept in .fronts.
set -eu
cd "$(dirname "$0")/.."

failed=
for front in ${*:-openenv inspect verifiers trl}; do
    home=.fronts/$front
    if [ ! -e "$home/.made" ] || [ pyproject.toml -nt "$home/.made" ]; then
        echo "fronts: making $home (pip)"
        [ -x "$home/bin/python" ] || .venv/bin/python -m venv "$home"
        pip="$home/bin/python -m pip install -q --disable-pip-version-check"
        # a build for the processor alone would need an index of its own; this one is pinned
        [ "$front" != trl ] || $pip 'torch==2.13.0'
        $pip -e ".[$front]" 'pytest>=8.3' 'pytest-timeout>=2.3' 'hypothesis>=6.112'
        touch "$home/.made"
    fi
    echo "== $front"
    "$home/bin/python" -m pytest -q "tests/fronts/test_$front.py" || failed="$failed $front"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
