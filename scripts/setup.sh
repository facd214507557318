#!/bin/sh
# Prepares .venv for work in this clone. Says what it installs before it does; what is there stays.
#
#   scripts/setup.sh              what the packages need
#   scripts/setup.sh all          what its tests need besides, as programs of the host
#   scripts/setup.sh all torch    and torch for the processor, with what trains, in .venv
set -eu
cd "$(dirname "$0")/.."
began=$(date +%s)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # where mkfs.* lie, which ordinary users do not have in it

# name of the Debian package, and what it is for
needed='
gcc: compiles the sandbox helper
libc6-dev: compiles the sandbox helper
uidmap: maps ids for ordinary users
mmdebstrap: builds root filesystems
debian-archive-keyring: verifies Debian packages
python3-venv: makes the virtual environment
libseccomp2: compiles the system-call filter again, in tests'

# package and program; tests/support/needs.py says which tests lack them
for_tests='
btrfs-progs mkfs.btrfs
chromium chromium
chromium-driver chromedriver
cpio cpio
e2fsprogs mkfs.ext4
nodejs node
npm npm
openssh-client ssh
patch patch
qemu-system-x86 qemu-system-x86_64
xfsprogs mkfs.xfs
zstd zstd'

install() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

if [ "${1:-}" = all ]; then
    missing=$(echo "$for_tests" | while read -r package program; do
        [ -z "$package" ] || command -v "$program" >/dev/null || echo "$package"
    done)
    if [ -n "$missing" ]; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            echo "setup: tests need what is not installed (as root: apt-get install" $missing")" >&2
            exit 3
        fi
        echo "setup: installing for the tests:" $missing
        install $missing
    fi
    [ "${2:-}" != torch ] ||
        .venv/bin/python -m pip install -q --disable-pip-version-check --group train
    exit
fi

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
        install $missing
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
echo "setup: installing the packages of this clone and their development tools into .venv (pip prints little; 1.4 GB)"
.venv/bin/python -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
.venv/bin/python -m pip install -q --disable-pip-version-check --group dev
# The build back end is there now: seven environments for builds would take seven times as long.
.venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation \
    $(for package in packages/*; do echo "-e $package"; done)
echo "setup: apt and pip took $(($(date +%s) - began)) s"
