"""Checks of this host for the `namespaces` backend; each check tries the feature out."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shioenv import native
from shioenv.errors import HostError, ShioenvError
from shioenv.files.durable import cache_directory
from shioenv.sandbox.namespaces.lower import LowerForm, file_system_of, form_here
from shioenv.system import host_diagnosis
from shioenv.system.declare import DEFAULT_SYSTEM, SystemDeclaration, load_declaration
from shioenv.system.host_checks import HostCheck, try_it
from shioenv.system.idmap import IdMap, find_idmap, run_mapped
from shioenv.system.values import UNLIMITED

OLDEST_KERNEL = (6, 6)
"""The first Linux whose tmpfs has user extended attributes, which the overlay needs."""

_SYS_NICE = 23  # the number of a capability
_NEWER_KERNEL = "apt-get install -t bookworm-backports linux-image-amd64 (Debian 12), then reboot"


def _declared() -> SystemDeclaration:
    return load_declaration(DEFAULT_SYSTEM)


def host_checks() -> Iterator[HostCheck]:
    """Run every check, each after those that it depends on, and clean up."""
    yield _kernel()
    yield try_it(
        "compiled helper",
        lambda: f"{native.sandbox_program()}",
        "it creates the namespaces and runs inputs in the system's bash",
    )
    idmap: list[IdMap] = []

    def range_of_ids() -> str:
        idmap.append(find_idmap())
        who = "root" if os.geteuid() == 0 else "an ordinary user"
        return f"65,536 ids from {idmap[0].first_uid} for {who}"

    yield try_it("subordinate ids", range_of_ids, "files of a system are owned by separate ids")
    if idmap:
        tried = list(_namespaces(idmap[0]))
        yield from tried
        if all(check.ok for check in tried):
            yield _tree()
    yield _priority()
    yield _limits()
    yield _crashes(Path("/proc/sys/kernel/core_pattern").read_text().strip())


def _kernel() -> HostCheck:
    release, machine = platform.release(), platform.machine()
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    oldest = ".".join(map(str, OLDEST_KERNEL))
    return HostCheck(
        name="kernel",
        ok=numbers >= OLDEST_KERNEL and machine == "x86_64",
        detail=f"Linux {release} on {machine}; required: {oldest} or newer on x86_64",
        why="changes of files go into an overlay in memory, which needs extended attributes",
        fix=_NEWER_KERNEL if numbers < OLDEST_KERNEL else "a machine with a 64-bit x86 processor",
    )


@dataclass(frozen=True, slots=True)
class _Feature:
    """A feature of the kernel, tried by a small shell script in a user namespace."""

    name: str
    script: str
    why: str
    fix: str | Callable[[], str]
    programs: tuple[str, ...] = ("unshare",)


def _mounting_fix() -> str:
    return host_diagnosis.CONTAINER_FIX if host_diagnosis.is_filtered() else _NEWER_KERNEL


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
        "inputs run with ids that have no rights on this host",
        host_diagnosis.CONTAINER_FIX,
        programs=(),
    ),
    _Feature(
        "overlay on tmpfs",
        f"unshare -m sh -ec '{_OVERLAY}'",
        "files that an input writes go into a layer in memory that is discarded",
        _overlay_fix,
    ),
    _Feature(
        "attributes on tmpfs",
        f"unshare -m sh -ec '{_OVERLAY} rm -r merged/d; mkdir merged/d; test ! -e merged/d/f'",
        "the overlay marks a directory that replaces another with one",
        _mounting_fix,
    ),
    _Feature(
        "proc in a namespace",
        "unshare -m -p -f sh -ec 'mount -t proc proc /proc && test -d /proc/1'",
        "inputs see only their own processes",
        host_diagnosis.CONTAINER_FIX,
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
        "inputs see the declared interfaces and cannot reach other hosts",
        "a kernel built with CONFIG_NET_NS",
    ),
    _Feature(
        "virtual ethernet",
        "unshare -n ip link add first type veth peer name second",
        "it provides the declared interfaces",
        _module_fix("veth"),
        programs=("unshare", "ip"),
    ),
)


_PACKAGES = {"ip": "iproute2", "unshare": "util-linux"}
"""The Debian package of each program that the scripts of features use."""


def _namespaces(idmap: IdMap) -> Iterator[HostCheck]:
    for feature in _FEATURES:
        fix = feature.fix if isinstance(feature.fix, str) else feature.fix()
        missing = next((p for p in feature.programs if shutil.which(p) is None), None)
        if missing:
            detail = f"not checked: the program {missing} is missing"
            fix = f"apt-get install {_PACKAGES[missing]}"
            yield HostCheck(feature.name, False, detail, feature.why, fix, needed=False)
            continue
        try:
            tried = run_mapped(["sh", "-ec", feature.script], idmap=idmap)
        except HostError as error:
            yield HostCheck(feature.name, False, error.message, feature.why, error.hint or fix)
            return  # nothing else can be tried
        ok = tried.returncode == 0
        detail = "works" if ok else _reason(tried)
        if (
            not ok
            and feature.name == "proc in a namespace"
            and (hidden := host_diagnosis.covered_proc())
        ):
            detail += f"; parts of /proc are masked: {', '.join(hidden[:3])}"
            fix = host_diagnosis.WHOLE_PROC_FIX
        yield HostCheck(feature.name, ok, detail, feature.why, fix)


def _reason(tried: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last informative line of a failed program's standard error."""
    said = tried.stderr.decode("utf-8", "replace").splitlines()
    told = [line.strip() for line in said if line.strip() and "dmesg(1)" not in line]
    return told[-1] if told else f"exit status {tried.returncode}"


def _tree() -> HostCheck:
    """Check how much of a system's tree is in memory, independent of this host's file systems."""
    name, why = "tree in memory", "records do not depend on the file system of the cache directory"
    try:
        form = form_here()
    except ShioenvError as error:
        return HostCheck(name, False, error.message, why, error.hint or "see docs/errors.md")
    whole, below = form is LowerForm.NAMES, file_system_of(cache_directory())
    return HostCheck(
        name=name,
        ok=whole,
        detail=f"{form}: all names and attributes; only file contents are on {below}"
        if whole
        else f"{form}: in /usr, order, sizes and access times come from {below}",
        why=why,
        fix="Linux 6.16 or newer, whose overlay supports data-only layers in user namespaces",
        needed=False,
    )


def inherited_priority() -> str:
    """Describe the priority that inputs inherit and reveal; empty if it can be reset.

    An ordinary user may raise a nice value but not lower it, and may not leave the idle scheduling
    policy. The same holds for root in a user namespace, because its capabilities do not apply here.
    """
    held = re.search(r"^CapEff:\s*(\S+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    rights = int(held[1], 16) if held is not None else 0
    if rights >> _SYS_NICE & 1 and not host_diagnosis.in_user_namespace():
        return ""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    lowest = 20 - resource.getrlimit(resource.RLIMIT_NICE)[0]
    if niceness > 0 and lowest > 0:
        return f"a nice value of {niceness}"
    idle = os.sched_getscheduler(0) == os.SCHED_IDLE and lowest > niceness
    return "the scheduling policy for idle work" if idle else ""


def inherited() -> list[str]:
    """Describe the attributes of this process that inputs inherit and reveal, a sentence each."""
    found = []
    if shown := inherited_priority():
        found.append(
            f"inputs inherit {shown} and can see it (nice, renice, ps -o ni, chrt -p); "
            "an ordinary user cannot reset it: start shioenv without nice and chrt"
        )
    if "\nNoNewPrivs:\t1\n" in Path("/proc/self/status").read_text():
        found.append(
            "set-user-id programs of inputs have no effect (no_new_privs): omit "
            "--security-opt no-new-privileges of a container, NoNewPrivileges= of a systemd unit"
        )
    return found


def _priority() -> HostCheck:
    shown = inherited_priority()
    return HostCheck(
        name="priority",
        ok=not shown,
        detail=f"inputs inherit {shown} from this process" if shown else "as declared",
        why="inputs can see it (`nice`, `renice`, `ps -o ni`, `chrt -p`), so records differ",
        fix="start shioenv without `nice` and `chrt`; bound inputs by `--workers` and limits",
        needed=False,
    )


def _limits() -> HostCheck:
    """Check whether the default system's declared resource limits can be set for inputs."""
    lower, options = [], []
    for name, (_, hard) in _declared().session.limits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}", None)
        ours = resource.RLIM_INFINITY if kind is None else resource.getrlimit(kind)[1]
        if ours != resource.RLIM_INFINITY and (hard == UNLIMITED or ours < hard):
            declared = "unlimited" if hard == UNLIMITED else str(hard)
            lower.append(f"{name} {ours} instead of {declared}")
            options.append(f"{name}={declared}")
    raised = " ".join(f"--{option}" for option in options)
    of_docker = " ".join(f"--ulimit {option.replace('unlimited', '-1')}" for option in options)
    return HostCheck(
        name="resource limits",
        ok=not lower,
        detail=f"lower than declared: {', '.join(lower)}" if lower else "as high as declared",
        why="inputs can see and reach their limits, so their behavior depends on them",
        fix="in the shell that starts shioenv: "
        f"{'' if os.geteuid() == 0 else 'sudo '}prlimit --pid $$ {raised} "
        f"(in a container: docker run {of_docker})",
        needed=False,
    )


def _crashes(pattern: str) -> HostCheck:
    """Check whether a crash in a sandbox starts a program of the host (as the host's root)."""
    return HostCheck(
        name="core dumps",
        ok=not pattern.startswith("|"),
        detail=f"kernel.core_pattern is {pattern}",
        why="an input that raises its core dump limit and crashes starts that program",
        fix="as root: echo 'kernel.core_pattern = core' >> /etc/sysctl.d/60-shioenv.conf "
        "&& sysctl --system",
        needed=False,
    )
