#!/bin/bash
# Builds a system in which another implementation stands in place of the programs of GNU's packages:
#
#   scripts/other_system.sh busybox|toybox|uutils    debian-12-NAME, from the base of debian-12
#   scripts/other_system.sh uutils-13                debian-13, and debian-13-uutils from the same base
#
# Needs root and mmdebstrap; toybox and uutils of Debian 12 also need a host whose apt has Debian 12's
# packages. A program's place is a link in /usr/bin, so Bash tells of the same paths as on Debian. Bash,
# and what the implementation lacks, are Debian's. A system of this name that is there already has to
# be removed first.
set -euo pipefail
cd "$(dirname "$0")/.."
shioenv=${SHIOENV:-.venv/bin/shioenv}

suite=debian-12
case ${1-} in
    busybox) program=busybox package=busybox names="busybox --list" ;;
    toybox) program=toybox package=toybox names=toybox ;;
    uutils | uutils-13) program=coreutils package=rust-coreutils names="ls /usr/lib/cargo/bin/coreutils" ;;
    *) sed -n 's/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
[ "$1" != uutils-13 ] || suite=debian-13

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
if [ $suite = debian-12 ]; then
    $shioenv system build debian-12
    tar -xf "$(ls -t "${SHIOENV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shioenv}"/bases/bookworm-*.tar | head -1)" -C "$work/root"
    if [ ! -e "$work/root/bin/$program" ]; then
        (cd "$work/root" && apt-get -o APT::Sandbox::User=root download "$package/bookworm")
        chroot "$work/root" sh -c "dpkg --install ./$package*.deb && rm ./$package*.deb"
    fi
else
    packages=$(sed -n '/^packages = \[/,/^\]/s/^ *"\(.*\)",/\1/p' packages/shioenv/src/shioenv/systems/debian-12.toml | paste -sd,)
    mmdebstrap --quiet --variant=minbase --include="$packages,$package" trixie "$work/base.tar"
    $shioenv system import debian-13 "$work/base.tar"
    tar -xf "$work/base.tar" -C "$work/root"
fi

chroot "$work/root" sh -c "
for name in \$($names); do
  [ -e \"/usr/bin/\$name\" ] || continue
  case \$(dpkg-query -S \"*bin/\$name\" 2>/dev/null | cut -d: -f1) in
    *coreutils*|*findutils*|*grep*|*sed*|*tar*|*gzip*|*diffutils*|*gawk*|*cpio*) echo \"\$name\" ;;
  esac
done" > "$work/names"
while read -r name; do
    ln -sf "$program" "$work/root/usr/bin/$name"
done < "$work/names"
tar -cf "$work/system.tar" -C "$work/root" .
if [ $suite = debian-12 ]; then
    $shioenv system build debian-12 --rootfs-tar "$work/system.tar" --name "debian-12-$1"
else
    $shioenv system import debian-13-uutils "$work/system.tar"
fi
