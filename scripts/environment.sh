#!/bin/sh
# Makes an environment of its own for what the usual one leaves out, or leaves it as it is:
# `scripts/environment.sh DIRECTORY EXTRAS [REQUIREMENT ...]`, requirements first. It gets all packages
# of this clone, with these extras of `shioenv`. PYTHON makes it.
set -eu
cd "$(dirname "$0")/.."

home=$1 extras=$2
shift 2
if [ ! -e "$home/.made" ] || [ "$(find pyproject.toml packages/*/pyproject.toml -newer "$home/.made")" ]; then
    echo "making $home (pip)"
    [ -x "$home/bin/python" ] || "${PYTHON:-.venv/bin/python}" -m venv "$home"
    pip="$home/bin/python -m pip install -q --disable-pip-version-check"
    [ $# = 0 ] || $pip "$@"
    $pip 'editables>=0.5' 'hatchling>=1.27'
    $pip --no-build-isolation -e "packages/shioenv[$extras]" \
        $(for package in packages/shioenv-*; do echo "-e $package"; done) 'pytest>=8.3' \
        'pytest-timeout>=2.3' 'pytest-xdist>=3.6' 'hypothesis>=6.112'
    touch "$home/.made"
fi
