"""Diagnose from a host's settings why it does not allow sandboxes, and suggest the exact fix."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shioenv import native
from shioenv.errors import HostError

CONTAINER_FIX = (
    "in a container: docker run --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined (podman: "
    "--security-opt unmask=ALL for the last); in a systemd unit: RestrictNamespaces=no and no "
    "SystemCallFilter="
)
WHOLE_PROC_FIX = (
    "docker run --security-opt systempaths=unconfined; podman run --security-opt unmask=ALL; "
    "in Kubernetes: procMount: Unmasked"
)
MORE_IDS_FIX = "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
_SYS_ADMIN = 21  # the number of a capability
_LONGEST_ERRNO = 4  # digits


class _Cause(NamedTuple):
    """The cause of a refusal, and its fix."""

    message: str
    fix: str


def failure(line: str) -> tuple[int, str]:
    """Parse the last line of a helper that failed to start, "E<errno> <step>".

    Returns (errno, step); errno is 0 if the line contains none.
    """
    number, _, step = line.removeprefix("E").partition(" ")
    known = number.isascii() and number.isdecimal() and len(number) <= _LONGEST_ERRNO
    return int(number) if known else 0, step


def no_user_namespace(said: str) -> HostError:
    """Return the error that explains why a user namespace could not be created or used.

    `said` is the last line of the helper (the sandbox program), "E<errno> <step>", or empty if it
    died.
    """
    number, step = failure(said)
    reason = os.strerror(number) if number else "the helper died"
    cause = _first(
        (_none_allowed, _ordinary_users_not, _apparmor, _filtered, _changed_root, _few_rights)
    )
    why, fix = cause or (f"{step or 'user namespace'}: {reason}", CONTAINER_FIX)
    return HostError(f"this host does not allow user namespaces: {why}", hint=fix)


def no_mapping(reason: str, user: str) -> HostError:
    """Return the error that explains why `user` could not map ids into a user namespace.

    `reason` is the error message of the attempt; it is used if no cause is found.
    """
    ordinary = (_no_new_privileges, _not_setuid, _nosuid, _nameless, _bounded)
    causes = (_few_ids,) if os.geteuid() == 0 else ordinary
    why, fix = _first(causes) or (reason, MORE_IDS_FIX.format(user=user))
    return HostError(f"mapping ids failed: {why}", hint=fix)


def in_user_namespace() -> bool:
    """Whether this process is outside the host's initial user namespace."""
    return _mapped_ids() < 2**32 - 1


def _mapped_ids() -> int:
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return sum(int(line.split()[2]) for line in lines)


def is_filtered() -> bool:
    """Whether a system-call filter applies to this process, as in most containers."""
    return _status("Seccomp") == "2"


def covered_proc() -> list[str]:
    """Return the mount points below /proc; containers use such mounts to hide parts of it.

    The mount point of binfmt_misc is excluded.
    """
    hidden = {point for point in _mount_points() if point.startswith("/proc/")}
    return sorted(point for point in hidden if "binfmt_misc" not in point)


def _mount_points() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def _first(causes: tuple[Callable[[], _Cause | None], ...]) -> _Cause | None:
    return next((cause for look in causes if (cause := look())), None)


def _setting(name: str) -> str | None:
    """Read a kernel setting by its path below /proc/sys; return None if it does not exist."""
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def _status(field: str) -> str:
    line = re.search(rf"^{field}:\s*(\S+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return line[1] if line else ""


def _sysctl(line: str) -> str:
    return f"as root: echo '{line}' >> /etc/sysctl.d/60-shioenv.conf && sysctl --system"


# ---- user namespaces ----


def _none_allowed() -> _Cause | None:
    if not Path("/proc/self/ns/user").exists():
        return _Cause("the kernel does not support them", "use a kernel built with CONFIG_USER_NS")
    if _setting("user/max_user_namespaces") == "0":
        fix = _sysctl("user.max_user_namespaces = 65536")
        return _Cause("user.max_user_namespaces is 0", fix)
    return None


def _ordinary_users_not() -> _Cause | None:
    if os.geteuid() != 0 and _setting("kernel/unprivileged_userns_clone") == "0":
        fix = _sysctl("kernel.unprivileged_userns_clone = 1")
        return _Cause("kernel.unprivileged_userns_clone is 0", fix)
    return None


def _apparmor() -> _Cause | None:
    setting = "kernel.apparmor_restrict_unprivileged_userns"
    if os.geteuid() == 0 or _setting(setting.replace(".", "/")) != "1":
        return None
    return _Cause(f"AppArmor denies them to unprivileged programs ({setting} is 1)", apparmor_fix())


def apparmor_fix() -> str:
    """Return a command that allows only the sandbox's helper to create user namespaces."""
    file = "/etc/apparmor.d/shioenv-sandbox"
    lines = (
        "abi <abi/4.0>,",
        "include <tunables/global>",
        f'profile shioenv-sandbox "{native.sandbox_program()}" flags=(unconfined) {{',
        "  userns,",
        "}",
    )
    quoted = " ".join(f"'{line}'" for line in lines)
    return f"as root: printf '%s\\n' {quoted} > {file} && apparmor_parser -r {file}"


def _filtered() -> _Cause | None:
    if not is_filtered():
        return None
    return _Cause("a system-call filter, as in containers, denies them", CONTAINER_FIX)


def _changed_root() -> _Cause | None:
    if "/" in _mount_points():
        return None
    return _Cause(
        "this process is in a chroot, where Linux denies them",
        "run shioenv outside, or enter the directory with systemd-nspawn -D instead of chroot",
    )


def _few_rights() -> _Cause | None:
    needed = {6: "SETGID", 7: "SETUID"}
    held = int(_status("CapEff") or "0", 16)
    lacking = [name for bit, name in needed.items() if not held >> bit & 1]
    if os.geteuid() != 0 or not lacking:
        return None
    options = " ".join(f"--cap-add {name}" for name in lacking)
    return _Cause(
        f"root lacks CAP_{' and CAP_'.join(lacking)} here",
        f"docker run {options} (or podman), or run shioenv as an ordinary user",
    )


# ---- mapping ids ----


def _few_ids() -> _Cause | None:
    if not in_user_namespace():
        return _few_rights()
    count = _mapped_ids()
    return _Cause(
        f"root is in a user namespace of only {count:,} ids",
        "run shioenv outside, as the user who created the namespace or container; or give the "
        "namespace 131,072 ids and write root:65536:65536 into its /etc/subuid and /etc/subgid",
    )


def _no_new_privileges() -> _Cause | None:
    if _status("NoNewPrivs") != "1":
        return None
    return _Cause(
        "newuidmap must gain privileges, which no_new_privs forbids",
        "in a container: omit --security-opt no-new-privileges; in a systemd unit: "
        "NoNewPrivileges=no",
    )


def _helpers() -> list[str]:
    return [path for name in ("newuidmap", "newgidmap") if (path := shutil.which(name))]


def _not_setuid() -> _Cause | None:
    for path in _helpers():
        try:
            os.getxattr(path, "security.capability")
        except OSError:
            if not Path(path).stat().st_mode & stat.S_ISUID:
                fix = f"as root: chmod u+s {' '.join(_helpers())}"
                return _Cause(f"{path} is not setuid root", fix)
    return None


def _nosuid() -> _Cause | None:
    for path in _helpers():
        if os.statvfs(path).f_flag & os.ST_NOSUID:
            fix = f"as root: mount -o remount,suid $(df --output=target {path} | tail -n 1)"
            return _Cause(f"{path} is on a file system mounted nosuid", fix)
    return None


def _nameless() -> _Cause | None:
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return _Cause(
            f"user {os.geteuid()} has no line in /etc/passwd, which newuidmap requires",
            f"as root: useradd --uid {os.geteuid()} NAME, or run shioenv as a user that has one",
        )
    return None


def _bounded() -> _Cause | None:
    if int(_status("CapBnd"), 16) >> _SYS_ADMIN & 1:
        return None
    uid, gid = _helpers()
    return _Cause(
        "a setuid newuidmap needs CAP_SYS_ADMIN, which this container forbids",
        f"as root: chmod u-s {uid} {gid} && setcap cap_setuid=ep {uid} && setcap cap_setgid=ep "
        f"{gid}; or docker run --cap-add SYS_ADMIN",
    )
