#!/bin/sh
# Prepares .venv for work in this clone. Says what it installs before it does; what is there stays.
set -eu
cd "$(dirname "$0")/.."

# name of the Debian package, and what it is for
needed='
gcc: compiles the sandbox helper
libc6-dev: compiles the sandbox helper
libseccomp2: filters system calls
uidmap: maps ids for ordinary users
mmdebstrap: builds root filesystems
debian-archive-keyring: verifies Debian packages
python3-venv: makes the virtual environment'

missing=
if command -v dpkg-query >/dev/null; then
    for package in $(echo "$needed" | cut -d: -f1); do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $package"
    done
fi
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing through apt-get:"
        for package in $missing; do echo "$needed" | sed -n "s/^$package: /  $package, which /p"; done
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "setup: not installed, and perhaps needed (as root: apt-get install$missing)" >&2
    fi
fi

if [ ! -x .venv/bin/python ]; then
    chosen=
    for python in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3}; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
        then chosen=$python; break; fi
    done
    if [ -z "$chosen" ]; then
        echo "setup: no Python >= 3.11 with venv found (Debian 12: apt-get install python3-venv)" >&2
        exit 3
    fi
    echo "setup: making .venv with $("$chosen" --version)"
    "$chosen" -m venv .venv
fi
echo "setup: installing shioenv and its development tools into .venv (pip)"
.venv/bin/python -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
.venv/bin/python -m pip install -q --disable-pip-version-check -e . --group dev
