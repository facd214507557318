#!/bin/bash
# Follows the README on machines that have nothing: every `make` that it names, in its order, of this
# working tree in Debian roots made anew, as root and as an ordinary user.
#
#   scripts/fresh.sh [debian-12:root] [debian-12:user] [debian-13:root] [debian-13:user] [debian-12:root+user]
#
# root+user: root does all of it. Then an ordinary user runs `make test-user` in the same clone.
#
#   scripts/fresh.sh --wheels DIRECTORY [debian-12:root] ... [debian-14:user]
#
# installs the wheels of all packages there instead, as docs/how-to/install.md says, and runs what they
# are for. Debian 14
# is Debian's next release.
#
#   scripts/fresh.sh --harbor [debian-13:user]
#
# follows docs/how-to/harbor.md there, from an empty environment to a job that pays each task's solution.
#
#   scripts/fresh.sh --reproduce [debian-12:root] [debian-13:user]
#
# runs `make setup` and `shioenv reproduce quick` there.
#
#   scripts/fresh.sh --steps         only says what it would run there
#
# Without a name Debian 12 and 13, by both. Needs root and mmdebstrap (`make setup` installs it). A root holds what
# the README takes for granted (git, make, ca-certificates, python3) and nothing else of this
# machine but its configuration of package registries: apt's, pip's, certificates, proxies. Logs
# and the lists of skipped tests stay in build/fresh. A root is removed at the end; KEEP=1 keeps it.
set -euo pipefail
cd "$(dirname "$0")/.."
self=$PWD/scripts/fresh.sh

packages=git,make,ca-certificates,python3
user=newcomer
declare -A suites=([debian-12]=bookworm [debian-13]=trixie [debian-14]=forky)
wheels=
logs=$PWD/build/fresh

# Pairs of NAME and VALUE that lead a client to a registry, as far as this host has them.
registry_environment() {
    env -0 | grep -zE '^(PIP_[A-Z_]+|(HTTPS?|ALL|NO)_PROXY|https?_proxy|all_proxy|no_proxy|(SSL_CERT|CURL_CA|REQUESTS_CA|GIT_SSL)[A-Z_]*)=' || true
}

# Directories that the configuration of pip or apt names: a file URL, or a path; of an index what lies
# around it.
registry_directories() {
    {
        python3 -m pip config list 2>/dev/null || true
        registry_environment | tr '\0' '\n'
        mirror Debian || true
        mirror Debian-Security || true
    } | { grep -oE '/[[:alnum:]_./+-]+' || true; } | sort -u | while read -r path; do
        case $path in /etc/* | /usr/* | //*) continue ;; esac
        [ ! -d "$path" ] || echo "${path%/simple}"
    done | sort -u
}

# Where this host gets packages of Debian: the first archive with the label. A directory is copied
# from: mmdebstrap does not take packages from one that the root does not have yet.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $1" 2>/dev/null |
        sed -n '1{s,/*$,,;s,^\(file\|copy\):/*,copy:/,;p}'
}

# make_root SUITE TARBALL
make_root() {
    local suite=$1 options=() file
    local main=$(mirror Debian) security=$(mirror Debian-Security)
    main=${main:-http://deb.debian.org/debian}
    security=${security:-http://deb.debian.org/debian-security}
    for file in /etc/apt/apt.conf.d/*; do
        if grep -qs '^ *Acquire' "$file" && ! dpkg-query -S "$file" >/dev/null 2>&1; then
            options+=(--aptopt="$file")
        fi
    done
    mmdebstrap --quiet --variant=minbase --include=$packages "${options[@]}" "$suite" "$2" \
        "deb $main $suite main" "deb $main $suite-updates main" "deb $security $suite-security main"
}

# Everything below runs in namespaces of its own: mounts and processes end with it.
# enter ROOT: makes ROOT this process's root.
enter() {
    local root=$1 path
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777,nosuid,nodev shm "$root/dev/shm"
    registry_directories | while read -r path; do
        mkdir -p "$root$path"
        mount --rbind -o ro "$path" "$root$path"
    done
    cd "$root"
    mkdir .host
    pivot_root . .host
    cd /
    umount -l /.host
    rmdir /.host
}

# carry ROOT: what is not mounted of the configuration of registries.
carry() {
    local root=$1 file
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/xdg/pip /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || { mkdir -p "$root${file%/*}"; cp -rL --remove-destination "$file" "$root$file"; }
    done
    for file in .config/pip .pip; do
        [ -e "$HOME/$file" ] || continue
        mkdir -p "$root/etc/skel/$file" "$root/root/$file"
        cp -rL "$HOME/$file/." "$root/etc/skel/$file"
        cp -rL "$HOME/$file/." "$root/root/$file"
    done
}

# clone DIRECTORY: the working tree, as git sees it, with what is not committed.
clone() {
    git clone -q --no-hardlinks . "$1"
    git ls-files -z --deleted | (cd "$1" && xargs -0r rm -f)
    git ls-files -z --cached --modified --others --exclude-standard --deduplicate |
        while IFS= read -rd '' path; do [ ! -e "$path" ] && [ ! -L "$path" ] || printf '%s\0' "$path"; done |
        tar --null -T - -c | tar -x -C "$1"
}

# What README.md tells a newcomer to make.
steps() {
    grep -oE '(^|`)make [a-z-]+' README.md | cut -d ' ' -f 2 | awk '!seen[$0]++'
}

# newcomer WHO: goes to where the clone of that one is; sets `carried`, and `run`, which runs a command for
# that one.
newcomer() {
    local home=/root place=/root/shioenv
    run=()
    mapfile -td '' carried < <(registry_environment)
    if [ "$1" = user ]; then
        useradd --create-home --shell /bin/bash $user
        chmod 700 /home/$user # Debian 13's default
        home=/home/$user run=(setpriv --reuid=$user --regid=$user --init-groups)
        if [ -e $place/.venv ]; then # its programs name the place where root made it
            chmod 711 /root
        else
            mv $place $home/shioenv
            place=$home/shioenv
        fi
        chown -R $user: $place
    fi
    run+=(env -i "${carried[@]}" HOME=$home PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin TERM=dumb)
    [ -z "${CI:-}" ] || run+=(CI="$CI")
    cd $place
}

# The commands of a newcomer who has the wheels, run in the root by root.
follow_wheel() {
    local run carried installed
    newcomer "$1"
    installed=$(sed -n 's/^apt-get install \(.*\)  # as root$/\1/p' install.md)
    env "${carried[@]}" sh -ec "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${installed:?}" >/dev/null
    "${run[@]}" sh -exc '
        python3 --version
        python3 -m venv env
        env/bin/pip install --quiet --disable-pip-version-check --find-links . "shioenv[all]"
        env/bin/python -m shioenv --version
        env/bin/shioenv doctor
        env/bin/shioenv system build
        env/bin/shioenv run "mkdir -m 750 new && ls -ld new"
        env/bin/shioenv generate dataset --count 50 --seed 7
        env/bin/shioenv dataset verify dataset
        env/bin/shioenv system derive another --seed 7 --out another
        echo "ls -l" >inputs
        env/bin/shioenv suite record inputs --out suite
        env/bin/shioenv evaluate --suite suite --predictor default --out evaluation
        env/bin/shioenv predict "ls -l"' 2>&1
}

# The commands of docs/how-to/harbor.md for a newcomer who has the clone, run in the root by root.
follow_harbor() {
    local page=docs/how-to/harbor.md run carried installed commands
    newcomer "$1"
    installed=$(sed -n 's/.*As root, `apt-get install \([^`]*\)`.*/\1/p' $page)
    commands=$(sed -n '/^## From installation to a job/,/^## What/{/^```sh$/,/^```$/{/^```/d;p}}' $page)
    SECONDS=0
    env "${carried[@]}" sh -ec "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${installed:?}" >/dev/null
    echo "== make ready: $SECONDS s"
    cd ..
    "${run[@]}" HARBOR_TELEMETRY=0 "$BASH" -ec '
        while read -r line; do echo "== make it, $(date +%T): $line"; eval "$line" </dev/null; done
        times' <<<"${commands:?}" 2>&1
    "${run[@]}" env/bin/python -c '
import json, pathlib
files = pathlib.Path("jobs/oracle").glob("*/result.json")
paid = [json.loads(file.read_text())["verifier_result"]["rewards"]["reward"] for file in files]
print(f"== make harbor: {sum(paid):g} of {len(paid)} tasks paid the oracle")
raise SystemExit(not paid or min(paid) < 1)'
    echo "== make harbor: $((SECONDS / 60)) min $((SECONDS % 60)) s in all, load $(cut -d ' ' -f 1 /proc/loadavg)"
}

# make_each TARGET ...: prints of each its exit status and time, and returns the first that is not 0.
make_each() {
    local target status
    for target; do
        echo "== make $target"
        SECONDS=0 status=0
        "${run[@]}" make $target || status=$?
        echo "== make $target: exit status $status after $((SECONDS / 60)) min $((SECONDS % 60)) s"
        [ $status = 0 ] || return $status
    done
}

# Gives an ordinary user what setup tells one to have installed; root installs it.
# Uses `run` and `carried` of `newcomer`.
install_what_setup_names() {
    local told
    told=$("${run[@]}" scripts/setup.sh 2>&1 >/dev/null | sed -n 's/.*(as root: \(apt-get install .*\)).*/\1/p' || true)
    echo "setup tells an ordinary user: ${told:?it names nothing to install}"
    env "${carried[@]}" sh -ec "apt-get update -qq; DEBIAN_FRONTEND=noninteractive $told -y -qq --no-install-recommends" >/dev/null
}

# The commands of a newcomer who has the clone, run in the root by root.
follow_readme() {
    local who=${1%+user} run carried status=0
    newcomer "$who"
    [ "$who" = root ] || install_what_setup_names
    make_each $(steps) || status=$?
    if [ "$1" = root+user ]; then # even if a test failed
        newcomer user
        # The user's system is built from the packages that root's was.
        mkdir -p /home/$user/.cache/shioenv
        cp -r /root/.cache/shioenv/bases /home/$user/.cache/shioenv
        chown -R $user: /home/$user/.cache
        make_each setup test-user || status=$?
    fi
    return $status
}

# What reproduces the committed values, run in the root by root.
follow_reproduce() {
    local run carried status=0
    newcomer "$1"
    [ "$1" = root ] || install_what_setup_names
    make_each setup
    SECONDS=0
    "${run[@]}" .venv/bin/shioenv reproduce quick --out reproduction 2>&1 || status=$?
    echo "== make reproduce: exit status $status after $((SECONDS / 60)) min $((SECONDS % 60)) s"
    return $status
}

if [ "${1:-}" = --steps ]; then
    steps
    exit
fi

# Where this script runs itself: in new namespaces, with ROOT, who, and what to follow.
if [ "${1:-}" = --inside ]; then
    enter "$2"
    "follow_$4" "$3"
    exit
fi

what=readme prefix=
if [ "${1:-}" = --wheels ]; then
    what=wheel prefix=wheels- wheels=$(realpath "$2")
    shift 2
elif [ "${1:-}" = --harbor ]; then
    what=harbor prefix=harbor-
    shift
    [ $# -gt 0 ] || set -- debian-13:user
elif [ "${1:-}" = --reproduce ]; then
    what=reproduce prefix=reproduce-
    shift
    [ $# -gt 0 ] || set -- debian-12:root debian-13:user
fi

if [ "$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then
    echo "fresh: needs root and mmdebstrap (apt-get install mmdebstrap)" >&2
    exit 3
fi
[ $# -gt 0 ] || set -- debian-12:root debian-12:user debian-13:root debian-13:user
mkdir -p "$logs"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/shioenv-fresh.XXXXXX")
chmod 755 "$work"
if [ -z "${KEEP:-}" ]; then trap 'rm -rf --one-file-system "$work"' EXIT; else echo "kept: $work"; fi

failed=
for name; do
    suite=${suites[${name%:*}]:-} who=${name#*:}
    case $suite:$who in
    :* | *:*:*) echo "fresh: no such machine: $name" >&2; exit 2 ;;
    *:root | *:user) ;;
    *:root+user) [ $what = readme ] || { echo "fresh: --$what takes no root+user: $name" >&2; exit 2; } ;;
    *) echo "fresh: $name: root, user or root+user?" >&2; exit 2 ;;
    esac
    log=$logs/$prefix${name/:/-}.log
    rm -f "${log%.log}.skipped"
    echo "== $name: $log"
    if [ ! -e "$work/$suite.tar" ]; then make_root "$suite" "$work/$suite.tar"; fi
    root=$work/${name/:/-}
    mkdir "$root"
    tar -x --numeric-owner -f "$work/$suite.tar" -C "$root"
    carry "$root"
    if [ "$wheels" ]; then
        mkdir "$root/root/shioenv"
        cp "$wheels"/*.whl docs/how-to/install.md "$root/root/shioenv"
    else
        clone "$root/root/shioenv"
    fi
    status=0
    unshare --mount --pid --fork --kill-child --propagation private \
        "$BASH" "$self" --inside "$root" "$who" "$what" >"$log" 2>&1 </dev/null || status=$?
    find "$root/root" "$root/home" -path '*/shioenv/build/skipped-tests' -exec cp {} "${log%.log}.skipped" \;
    grep -E '^(setup tells|== make)' "$log" || true
    tail -n 40 "$log" | sed 's/^/    /'
    if [ $status != 0 ]; then failed="$failed $name"; fi
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$root"
done
[ -z "$failed" ] || { echo "fresh: failed on$failed; logs are in $logs" >&2; exit 1; }
echo "fresh: passed on $*"
