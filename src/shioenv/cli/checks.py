"""What `shioenv doctor` checks, by trying it."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shioenv import native
from shioenv.errors import HostError, ShioenvError
from shioenv.sandbox.seccomp import filter_program
from shioenv.system.build import apt_sources, cache_directory
from shioenv.system.declare import DEFAULT_SYSTEM, load_declaration
from shioenv.system.idmap import IdMap, find_idmap, run_mapped
from shioenv.system.store import System, find_system

OLDEST_KERNEL = (6, 6)
"""The first Linux whose tmpfs keeps user extended attributes, which the overlay needs."""

ROOM_BYTES = 1_500_000_000
"""Free space that building a system takes at most: the base, the system, and both while packed."""

_NEWER_KERNEL = "apt-get install -t bookworm-backports linux-image-amd64 (Debian 12), then reboot"
_CONTAINER = (
    "in a container: run it with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried. `needed` is False for what the work can do without."""

    name: str
    ok: bool
    detail: str
    why: str
    fix: str
    needed: bool = True

    def to_json(self) -> dict[str, Any]:
        """The check with `fix` only where something is missing."""
        document = asdict(self)
        if self.ok:
            document["fix"] = None
        return document


def check_host() -> list[Check]:
    """Every check in the order in which one thing needs the other; nothing stays behind."""
    return list(_checks())


def _checks() -> Iterator[Check]:
    yield _kernel()
    yield _try(
        "compiled helper",
        lambda: f"{native.sandbox_program()}",
        "it makes the namespaces and serves inputs from the system's own bash",
    )
    yield _try(
        "libseccomp",
        lambda: f"a filter of {len(filter_program())} bytes",
        "system calls that reach past the namespaces are refused with it",
    )
    idmap: list[IdMap] = []

    def range_of_ids() -> str:
        idmap.append(find_idmap())
        who = "root" if os.geteuid() == 0 else "an ordinary user"
        return f"65,536 ids from {idmap[0].first_uid} for {who}"

    yield _try("subordinate ids", range_of_ids, "files of a system are owned by ids of their own")
    if idmap:
        yield from _namespaces(idmap[0])
    system = _built()
    yield from _building(system)
    yield _system(system)


def _kernel() -> Check:
    release = platform.release()
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    return Check(
        name="kernel",
        ok=numbers >= OLDEST_KERNEL,
        detail=f"Linux {release}, {'.'.join(map(str, OLDEST_KERNEL))} or newer is needed",
        why="files are changed on an overlay over memory, which needs extended attributes there",
        fix=_NEWER_KERNEL,
    )


def _try(name: str, attempt: Callable[[], str], why: str) -> Check:
    """What an attempt says, or what it lacked."""
    try:
        return Check(name, True, attempt(), why, "")
    except ShioenvError as error:
        return Check(name, False, error.message, why, error.hint or "see docs/errors.md")


@dataclass(frozen=True, slots=True)
class _Feature:
    """A feature of the kernel, tried by a small shell script inside a user namespace."""

    name: str
    script: str
    why: str
    fix: str
    program: str = "unshare"


_OVERLAY = """
unshare -m sh -ec '
mount -t tmpfs none /tmp
cd /tmp
mkdir -p lower/d upper work merged
touch lower/d/f
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr,xino=on none merged
rm -r merged/d && mkdir merged/d && touch merged/d/g
test -e merged/d/g -a ! -e merged/d/f
'"""

_FEATURES = (
    _Feature(
        "user namespaces",
        "true",
        "inputs run as ids that are nobody on this host",
        "sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1 "
        "kernel.apparmor_restrict_unprivileged_userns=0 (those of them that exist), as root; "
        + _CONTAINER,
    ),
    _Feature(
        "overlay on tmpfs",
        _OVERLAY,
        "what an input writes goes into a layer in memory that is thrown away",
        _NEWER_KERNEL + "; " + _CONTAINER,
    ),
    _Feature(
        "proc in a namespace",
        "unshare -m -p -f sh -ec 'mount -t proc proc /proc && test -d /proc/1'",
        "inputs see their own processes and none of this host's",
        _CONTAINER,
    ),
    _Feature(
        "time namespaces",
        "unshare -T true",
        "uptime is the declared machine's, not this host's",
        "a kernel built with CONFIG_TIME_NS",
    ),
    _Feature(
        "network namespaces",
        "unshare -n test -d /proc/self/net",
        "inputs see the declared interfaces and have no way out",
        "a kernel built with CONFIG_NET_NS",
    ),
    _Feature(
        "virtual ethernet",
        "unshare -n ip link add first type veth peer name second",
        "the declared interfaces are made of it",
        "modprobe veth, as root; at every start: echo veth > /etc/modules-load.d/veth.conf",
        program="ip",
    ),
)


def _namespaces(idmap: IdMap) -> Iterator[Check]:
    for feature in _FEATURES:
        missing = next((p for p in ("unshare", feature.program) if shutil.which(p) is None), None)
        if missing:
            detail = f"not tried: this host has no program {missing}"
            yield Check(feature.name, False, detail, feature.why, feature.fix, needed=False)
            continue
        try:
            tried = run_mapped(["sh", "-ec", feature.script], idmap=idmap)
        except HostError as error:
            yield Check(feature.name, False, error.message, feature.why, error.hint or feature.fix)
            if feature.name == "user namespaces":
                return  # nothing else can be tried
            continue
        said = tried.stderr.decode("utf-8", "replace").strip().splitlines()
        ok = tried.returncode == 0
        detail = "tried" if ok else (said[-1] if said else f"exit status {tried.returncode}")
        yield Check(feature.name, ok, detail, feature.why, feature.fix)


def _built() -> System | None:
    try:
        return find_system()
    except ShioenvError:
        return None


def _building(system: System | None) -> Iterator[Check]:
    """What building a system takes: needed only while the default one is not there."""
    needed = system is None
    mmdebstrap = shutil.which("mmdebstrap")
    yield Check(
        name="mmdebstrap",
        ok=mmdebstrap is not None,
        detail=mmdebstrap or "not installed",
        why="it makes root filesystems from Debian's and Ubuntu's packages",
        fix="apt-get install mmdebstrap; elsewhere: shioenv system build --rootfs-tar FILE",
        needed=needed,
    )
    cache = cache_directory()
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    writable = os.access(existing, os.W_OK)
    yield Check(
        name="disk",
        ok=writable and (not needed or free >= ROOM_BYTES),
        detail=f"{free / 1e9:.1f} GB free in {cache}" + ("" if writable else ", not writable"),
        why="built systems are kept there",
        fix="free 1.5 GB, or choose another directory: export SHIOENV_CACHE=DIR",
    )
    yield _mirror()


def _mirror() -> Check:
    """Whether the first package mirror answers; nothing but building needs it."""
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    distribution = load_declaration(DEFAULT_SYSTEM).distribution
    source = apt_sources(distribution)[0]
    words = re.sub(r"\[[^\]]*\]", "", source).split()
    address = f"{words[1].rstrip('/')}/dists/{words[2]}/InRelease"
    why = "the packages of a new system are downloaded from it"
    fix = "set a mirror in /etc/apt/sources.list, or: shioenv system build --rootfs-tar FILE"
    try:
        with urlopen(Request(address, method="HEAD"), timeout=5):
            pass
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Check("mirror", False, f"{words[1]}: {reason}", why, fix, needed=False)
    return Check("mirror", True, f"{words[1]} answers", why, fix, needed=False)


def _system(system: System | None) -> Check:
    name, why = "sandbox", "everything that was tried above, put together"
    if system is None:
        return Check(
            name=f"system {DEFAULT_SYSTEM}",
            ok=False,
            detail="not built yet",
            why="inputs run on it",
            fix="shioenv system build",
            needed=False,
        )

    def attempt() -> str:
        from shioenv.behavior.observe import open_sandbox

        with open_sandbox(system) as sandbox:
            said = sandbox.run("echo ready").output.decode("utf-8", "replace").strip()
        return f"{system.name} answers: {said}"

    return _try(name, attempt, why)
