"""Host checks: the result type, and the checks of the requirements for building a system."""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shioenv.errors import HostError, ShioenvError
from shioenv.files.durable import cache_directory
from shioenv.system.bootstrap import ROOM_BYTES, apt_sources
from shioenv.system.declare import DEFAULT_SYSTEM, load_declaration

OPEN_FILES = 256
"""Open files that suffice for a process with one sandbox, and for a worker with all its lanes
(sandboxes). The supervisor uses descriptors up to number 206."""


FILE_BYTES = 64 << 20
"""Required file size limit in bytes, several times the size of the files that a sandbox writes."""


def allow_large_files() -> None:
    """Raise this process's file size limit to at least `FILE_BYTES`.

    With a lower limit, SIGXFSZ can kill the supervisor. Errors: HostError if the hard limit is too
    low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hard != resource.RLIM_INFINITY and hard < FILE_BYTES:
        hard = resource.RLIM_INFINITY  # root may raise it
    if soft != resource.RLIM_INFINITY and soft < FILE_BYTES:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, hard))
        except (ValueError, OSError):
            raise HostError(
                f"the limit of file sizes is {soft:,} bytes; required: {FILE_BYTES:,}",
                hint="raise the limit: ulimit -f unlimited in the shell that starts shioenv; "
                f"docker run --ulimit fsize={FILE_BYTES}; in a systemd unit: "
                f"LimitFSIZE={FILE_BYTES}",
            ) from None


def allow_open_files(needed: int = OPEN_FILES) -> None:
    """Raise this process's limit of open files to at least `needed`.

    Errors: HostError if the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        enough = max(needed, 1024)
        raise HostError(
            f"the limit of open files is {hard}; required: {needed}",
            hint=f"raise the limit: ulimit -n {enough} in the shell that starts shioenv; "
            f"docker run --ulimit nofile={enough}; in a systemd unit: LimitNOFILE={enough}",
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@dataclass(frozen=True, slots=True)
class HostCheck:
    """The result of one check. `needed` is False for an optional requirement.

    If `next_step` is true, nothing is missing, and `fix` is the next command to run.
    """

    name: str
    ok: bool
    detail: str
    why: str
    fix: str
    needed: bool = True
    next_step: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object; `fix` is None if the check passed."""
        document = asdict(self)
        if self.ok:
            document["fix"] = None
        return document


def try_it(name: str, attempt: Callable[[], str], why: str) -> HostCheck:
    """Call `attempt` and return a check whose `detail` is its result or its error's message."""
    try:
        return HostCheck(name, True, attempt(), why, "")
    except ShioenvError as error:
        return HostCheck(name, False, error.message, why, error.hint or "see docs/errors.md")


def building_checks(*, needed: bool) -> Iterator[HostCheck]:
    """Check the requirements for building a system.

    `needed` is true if no system is built yet. Only then the mirror is checked too.
    """
    mmdebstrap = shutil.which("mmdebstrap")
    yield HostCheck(
        name="mmdebstrap",
        ok=mmdebstrap is not None,
        detail=mmdebstrap or "not installed",
        why="it builds root filesystems from packages of Debian and Ubuntu",
        fix="apt-get install mmdebstrap; elsewhere: shioenv system build --rootfs-tar FILE",
        needed=needed,
    )
    cache = cache_directory()
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    writable = os.access(existing, os.W_OK)
    yield HostCheck(
        name="disk",
        ok=writable and (not needed or free >= ROOM_BYTES),
        detail=f"{free / 1e9:.1f} GB free in {cache}" + ("" if writable else ", not writable"),
        why="built systems are stored there",
        fix="free 1.1 GB, or choose another directory: export SHIOENV_CACHE=DIR",
    )
    if needed:
        yield _mirror()


def _mirror() -> HostCheck:
    """Check that the first package mirror answers; only builds need the mirror."""
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
        return HostCheck("mirror", False, f"{words[1]}: {reason}", why, fix, needed=False)
    return HostCheck("mirror", True, f"{words[1]} answers", why, fix, needed=False)
