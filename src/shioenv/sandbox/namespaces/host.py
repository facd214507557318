"""What `shioenv doctor` checks, by trying it."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shioenv import native
from shioenv.errors import HostError, ShioenvError
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.probe import shell_mode
from shioenv.sandbox.namespaces.seccomp import filter_program
from shioenv.system import refusals
from shioenv.system.build import apt_sources, cache_directory
from shioenv.system.declare import DEFAULT_SYSTEM, UNLIMITED, load_declaration
from shioenv.system.idmap import IdMap, find_idmap, run_mapped
from shioenv.system.store import System, find_system

OLDEST_KERNEL = (6, 6)
"""The first Linux whose tmpfs keeps user extended attributes, which the overlay needs."""

ROOM_BYTES = 1_500_000_000
"""Free space that building a system takes at most: the base, the system, and both while packed."""

_NEWER_KERNEL = "apt-get install -t bookworm-backports linux-image-amd64 (Debian 12), then reboot"


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
    """Every check in the order in which one thing needs the other; nothing stays behind.

    The last is a sandbox, which lacks what was found missing before: that is said once.
    """
    *parts, whole = _checks()
    said = {check.detail for check in parts if not check.ok}
    return parts if whole.detail in said else [*parts, whole]


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
    yield _limits()
    yield _crashes(Path("/proc/sys/kernel/core_pattern").read_text().strip())
    system = _built()
    yield from _building(system)
    yield _system(system)


def _kernel() -> Check:
    release, machine = platform.release(), platform.machine()
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    oldest = ".".join(map(str, OLDEST_KERNEL))
    return Check(
        name="kernel",
        ok=numbers >= OLDEST_KERNEL and machine == "x86_64",
        detail=f"Linux {release} on {machine}; {oldest} or newer on x86_64 is needed",
        why="files are changed on an overlay over memory, which needs extended attributes there",
        fix=_NEWER_KERNEL if numbers < OLDEST_KERNEL else "a machine with a 64-bit x86 processor",
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
    fix: str | Callable[[], str]
    programs: tuple[str, ...] = ("unshare",)


def _mounting_fix() -> str:
    return refusals.CONTAINER_FIX if refusals.is_filtered() else _NEWER_KERNEL


def _overlay_fix() -> str:
    if "\toverlay\n" not in Path("/proc/filesystems").read_text():
        return _module_fix("overlay")
    return _mounting_fix()


def _module_fix(name: str) -> str:
    return f"as root: modprobe {name} && echo {name} > /etc/modules-load.d/{name}.conf"


_OVERLAY = """
mount -t tmpfs none /tmp
cd /tmp
mkdir -p lower/d upper work merged
touch lower/d/f
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr,xino=on none merged
"""

_FEATURES = (
    _Feature(
        "user namespaces",
        "true",
        "inputs run as ids that are nobody on this host",
        refusals.CONTAINER_FIX,
        programs=(),
    ),
    _Feature(
        "overlay on tmpfs",
        f"unshare -m sh -ec '{_OVERLAY}'",
        "what an input writes goes into a layer in memory that is thrown away",
        _overlay_fix,
    ),
    _Feature(
        "attributes on tmpfs",
        f"unshare -m sh -ec '{_OVERLAY} rm -r merged/d; mkdir merged/d; test ! -e merged/d/f'",
        "a directory that replaces another is marked with one",
        _mounting_fix,
    ),
    _Feature(
        "proc in a namespace",
        "unshare -m -p -f sh -ec 'mount -t proc proc /proc && test -d /proc/1'",
        "inputs see their own processes and none of this host's",
        refusals.CONTAINER_FIX,
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
        _module_fix("veth"),
        programs=("unshare", "ip"),
    ),
)


def _namespaces(idmap: IdMap) -> Iterator[Check]:
    for feature in _FEATURES:
        fix = feature.fix if isinstance(feature.fix, str) else feature.fix()
        missing = next((p for p in feature.programs if shutil.which(p) is None), None)
        if missing:
            detail = f"not tried: this host has no program {missing}"
            yield Check(feature.name, False, detail, feature.why, fix, needed=False)
            continue
        try:
            tried = run_mapped(["sh", "-ec", feature.script], idmap=idmap)
        except HostError as error:
            yield Check(feature.name, False, error.message, feature.why, error.hint or fix)
            return  # nothing else can be tried
        ok = tried.returncode == 0
        detail = "tried" if ok else _reason(tried)
        if not ok and feature.name == "proc in a namespace" and (hidden := refusals.covered_proc()):
            detail += f"; the kernel gives none where parts are covered: {', '.join(hidden[:3])}"
            fix = refusals.WHOLE_PROC_FIX
        yield Check(feature.name, ok, detail, feature.why, fix)


def _reason(tried: subprocess.CompletedProcess[bytes]) -> str:
    """The last line with something to say of what a program wrote about its failure."""
    said = tried.stderr.decode("utf-8", "replace").splitlines()
    told = [line.strip() for line in said if line.strip() and "dmesg(1)" not in line]
    return told[-1] if told else f"exit status {tried.returncode}"


def _limits() -> Check:
    """Whether inputs can be given the limits that the system declares."""
    lower = []
    for name, (_, hard) in load_declaration(DEFAULT_SYSTEM).session.limits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}", None)
        ours = resource.RLIM_INFINITY if kind is None else resource.getrlimit(kind)[1]
        if ours != resource.RLIM_INFINITY and (hard == UNLIMITED or ours < hard):
            lower.append(f"{name} {ours} instead of {'unlimited' if hard == UNLIMITED else hard}")
    return Check(
        name="resource limits",
        ok=not lower,
        detail=f"lower than declared: {', '.join(lower)}" if lower else "as high as declared",
        why="inputs see and meet their limits: with others they do other things than elsewhere",
        fix="as root: prlimit --pid PID --NAME=VALUE for the shell that starts it, or a line in "
        "/etc/security/limits.conf; docker run --ulimit NAME=VALUE; in a systemd unit: LimitNAME=",
        needed=False,
    )


def _crashes(pattern: str) -> Check:
    """Whether a program that crashes in a sandbox starts one of the host's, as its root."""
    return Check(
        name="core dumps",
        ok=not pattern.startswith("|"),
        detail=f"kernel.core_pattern is {pattern}",
        why="an input that raises its own limit for core dumps and crashes starts that program",
        fix="as root: echo 'kernel.core_pattern = core' >> /etc/sysctl.d/60-shioenv.conf "
        "&& sysctl --system",
        needed=False,
    )


def _built() -> System | None:
    try:
        return find_system()
    except ShioenvError:
        return None


def _building(system: System | None) -> Iterator[Check]:
    """What building a system takes: needed, and the mirror asked, only while there is none."""
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
    if needed:
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
        with NamespaceSandbox(system, mode=shell_mode(system)) as sandbox:
            said = sandbox.run(Request("echo ready")).output.decode("utf-8", "replace").strip()
        return f"{system.name} answers: {said}"

    return _try(name, attempt, why)
