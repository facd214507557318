#!/bin/sh
# Tests each front against the package it is for, in an environment of its own: they exclude each
# other. `scripts/fronts.sh openenv` does one; without a name all. Environments are kept in .fronts.
set -eu
cd "$(dirname "$0")/.."

failed=
for front in ${*:-openai openenv inspect verifiers trl harbor}; do
    if [ "$front" = harbor ] && ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
        echo "== harbor: left out, it needs Python 3.12 or newer"
        continue
    fi
    home=.fronts/$front
    case $front in
    trl) first=torch==2.13.0 ;; # a build for the processor alone would need an index of its own
    openai) first='openai>=1.50' ;; # the client
    *) first= ;;
    esac
    scripts/environment.sh "$home" "$front" $first
    echo "== $front"
    "$home/bin/python" -m pytest -q tests/fronts/test_"$front"*.py || failed="$failed $front"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
