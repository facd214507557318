"""Run a host program on layers above the host's files, and report its changes."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from shioenv.behavior.capture import Recorder
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import keys
from shioenv.domain.names import name_bytes
from shioenv.domain.patch import ContextPatch
from shioenv.errors import HostError, SandboxError, UsageError, did_you_mean
from shioenv.sandbox.base import (
    GIBIBYTE,
    MEBIBYTE,
    Execution,
    FileChange,
    FileStat,
    Limits,
)
from shioenv.sandbox.change_records import parse_changes
from shioenv.system import host_diagnosis
from shioenv.text import short_repr
from shioenv_agents.preview import keeper
from shioenv_agents.preview.apply import Application
from shioenv_agents.preview.keeper import PATIENCE, Keeper
from shioenv_agents.preview.mounts import LONGEST, PreviewPlan
from shioenv_agents.preview.terminal_state import kept_streams
from shioenv_agents.preview.texts import read_at, text_diff

SECRETS = (
    ".aws", ".azure", ".bash_history", ".cargo/credentials.toml", ".config/gcloud", ".config/gh",
    ".config/hub", ".docker/config.json", ".git-credentials", ".gnupg", ".kube",
    ".local/share/keyrings", ".mozilla", ".config/chromium", ".config/google-chrome", ".netrc",
    ".npmrc", ".password-store", ".pgpass", ".pypirc", ".python_history", ".ssh", ".zsh_history",
)  # fmt: skip
"""Paths below a home that are hidden from a command.

The homes are those of the user and of `SUDO_USER`; for root, those of all users.
"""

USUAL_LIMITS = Limits(
    wall_seconds=600,
    cpu_seconds=600,
    memory_bytes=2 * GIBIBYTE,
    processes=1024,
    disk_bytes=GIBIBYTE,
    disk_inodes=262_144,
    output_bytes=MEBIBYTE,
    drain_bytes=256 * MEBIBYTE,
    scan_seconds=60,
)
"""Default limits of a preview. A sandbox's defaults are for single inputs and a small machine."""

LOOK_SECONDS = 0.05
"""Seconds between two measurements of a command's processes."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_NOBODY = 65534  # shown for an unmapped id


@dataclass(frozen=True, slots=True)
class Preview:
    """The changes that a command would have made, and how completely they were observed."""

    behavior: Behavior
    """Exit code, patch, flags; the output if it was captured. Times are of the host's clock."""
    diff: str
    """The changed contents as a unified diff with absolute names, for `patch -p1 -d /`.

    Files with contents that are not text, or too large, come first, one line each.
    """
    diff_truncated: bool
    """Whether a changed text, or all of them together, exceed the size limit of the diff."""
    start: str
    """The start directory of the command. Names in the patch are relative to it."""
    whole: bool
    """Whether the whole root was layered; if not, only `layers` are writable."""
    layers: tuple[str, ...]
    """Directories whose changes are reported."""
    read_only: tuple[str, ...]
    """Mount points that could not be layered."""
    hidden: tuple[str, ...]
    """Paths that were hidden from the command."""
    reachable: tuple[str, ...]
    """Known sockets and FIFOs of the host that the command could reach."""
    undo: str | None = None
    """The directory with the old versions of files, if the changes were applied."""

    def __repr__(self) -> str:
        return short_repr(self, {"start": self.start, "behavior": self.behavior})


def preview(
    command: Sequence[str],
    *,
    root: str | None = None,
    hide: Iterable[str] = (),
    show: Iterable[str] = (),
    network: bool = False,
    limits: Limits = USUAL_LIMITS,
    capture: bool = False,
    apply: Callable[[Preview], bool] | None = None,
) -> Preview:
    """Run a command with the caller's rights on layers, and return the changes it would make.

    `root` is the directory to layer if the host's whole file system cannot be layered (None: the
    working directory). The command starts in the working directory if that is inside `root`, else
    in `root`. `hide` adds paths to `SECRETS`; `show` removes paths from them. The command shares
    this process's standard input, output and error. With `capture`, output and error are in the
    result instead, at most `Limits.output_bytes` of them. `apply` is called with the preview. If it
    returns True, all changes are made for real, or none if a file beneath them has changed.

    Errors: UsageError, also for changes that are not applied; HostError if this host allows no
    layers; SandboxError if a helper was killed.
    """
    with kept_streams() as on_resize, ExitStack() as stack:
        plan = _plan(command, root=root, start=".", secrets=_hidden(hide, show), limits=limits)
        given = keeper.standard_input()
        try:
            started = keeper.start_keeper(given, capture=capture, network=network)
        finally:
            if given is not None and given > 2:
                os.close(given)
        stack.enter_context(started)
        place = None
        if apply is not None:
            place = os.open(plan.directories[-1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, place)
        running = _Running(plan, limits, started, stack)
        on_resize.append(running.resize)
        began = time.time_ns()
        made = running.finish()
        if apply is None or place is None or not apply(made):
            return made
        if made.behavior.limits_hit or made.behavior.patch_truncated:
            raise UsageError("nothing was applied, because the command reached a limit")
        application = Application(place, plan.directories[-1], began)
        undo = application.apply(running.changes, running.open_changed, running.read_changed_link)
        return replace(made, undo=undo)


def preview_in(
    started: Keeper,
    command: Sequence[str],
    start: str,
    *,
    hide: Iterable[str] = (),
    show: Iterable[str] = (),
    limits: Limits = USUAL_LIMITS,
    stack: ExitStack | None = None,
) -> Preview:
    """Preview a command in a directory with a keeper that was started before.

    A server keeps such keepers ready, because starting one takes most of the time. The keeper is
    used up, and must have been started with `capture`. `Keeper.end`, called in another thread, ends
    the command; SandboxError is raised then. With `stack`, the keeper and its layers are removed
    only when the caller closes `stack`, because removing them takes a fifth of the time. Other
    parameters and errors: those of `preview`.
    """
    with ExitStack() if stack is None else nullcontext(stack) as stack:
        stack.enter_context(started)
        plan = _plan(command, root=start, start=start, secrets=_hidden(hide, show), limits=limits)
        return _Running(plan, limits, started, stack).finish()


def _plan(
    command: Sequence[str],
    *,
    root: str | None,
    start: str,
    secrets: tuple[str, ...],
    limits: Limits,
) -> PreviewPlan:
    """Return the instructions for a preview. Errors: UsageError."""
    directory = os.path.realpath(root or ".")
    if not Path(directory).is_dir():
        raise UsageError(f"--root {directory} is not a directory", hint="use an existing directory")
    if not command:
        raise UsageError("no command to preview", hint="shioenv preview -- COMMAND")
    here = os.path.realpath(start)
    if (over := next((path for path in secrets if _inside(directory, path)), None)) is not None:
        raise UsageError(
            f"the directory {directory} is inside the hidden path {over}", hint=f"add --show {over}"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return PreviewPlan(
        command=tuple(command),
        start=here if _inside(here, directory) else directory,
        directories=_directories(directory),
        hidden=secrets,
        sockets=_sockets(),
        whole=keeper.may_mount(),
        processes=limits.processes,
        disk_bytes=limits.disk_bytes,
        disk_inodes=limits.disk_inodes,
        background_seconds=limits.background_seconds,
        scan_seconds=limits.scan_seconds,
        open_files=(soft, hard),
        own_id=not keeper.may_mount(),
        uid=os.geteuid(),
        gid=os.getegid(),
        parent=os.getpid(),
    )


def _inside(path: str, directory: str) -> bool:
    return os.path.commonpath([path, directory]) == directory


def _hidden(hide: Iterable[str], show: Iterable[str]) -> tuple[str, ...]:
    """Return the existing hidden paths, absolute and without links."""
    places = [os.path.join(home, name) for home in _homes() for name in SECRETS]  # noqa: PTH118
    shown = {*show}
    # A link is resolved only if it exists, because hundreds of paths do not.
    paths = {os.path.realpath(each) for each in places if shown or os.path.lexists(each)}
    for path in hide:
        if not os.path.lexists(Path(path).expanduser()):
            raise UsageError(f"--hide {path} does not exist", hint="use an existing path")
        paths.add(os.path.realpath(Path(path).expanduser()))
    for path in shown:
        real = os.path.realpath(Path(path).expanduser())
        if real not in paths:
            raise UsageError(f"--show {path} is not a hidden path", hint=did_you_mean(real, paths))
        paths.remove(real)
    return tuple(sorted(path for path in paths if os.path.lexists(path)))


def _sockets() -> tuple[str, ...]:
    """Return the files of the sockets in this process's network namespace."""
    found = set()
    for line in Path("/proc/net/unix").read_bytes().splitlines()[1:]:
        name = line.split(maxsplit=7)[7:]
        if name and name[0].startswith(b"/"):
            directory, _, last = os.fsdecode(name[0]).rpartition("/")
            found.add(f"{os.path.realpath(directory or '/').rstrip('/')}/{last}")
    return tuple(sorted(found))


def _homes() -> set[Path]:
    """Return the homes with hidden secrets: those of the user and `SUDO_USER`, or all for root."""
    found = {Path.home()}
    with suppress(KeyError):
        found.add(Path(pwd.getpwnam(os.environ["SUDO_USER"]).pw_dir))
    if os.geteuid() == 0:
        found.update(Path(user.pw_dir) for user in pwd.getpwall())
    return found


def _directories(directory: str) -> tuple[str, ...]:
    """Return the directories to layer, with the mandatory one last."""
    home = os.path.realpath(Path.home())
    return (home, directory) if home != "/" and Path(home).is_dir() else (directory,)


class Watch:
    """Monitor the processes of a PID namespace from outside, where they cannot interfere."""

    def __init__(self, limits: Limits, proc: int, segments: int) -> None:
        """Begin to measure the wall time.

        `proc` is a descriptor of the namespace's /proc, `segments` of its list of shared memory
        segments.
        """
        self._limits, self._proc, self._segments = limits, proc, segments
        self._end = time.monotonic() + limits.wall_seconds

    def reached(self, *, timed: bool) -> str | None:
        """Return the name in `Limits` of the limit that is reached; None if there is none.

        With `timed`, the wall time is checked too.
        """
        if timed and time.monotonic() >= self._end:
            return "wall_seconds"
        ticks = pages = threads = 0
        for name in filter(str.isdecimal, os.listdir(self._proc)):  # noqa: PTH208 - a descriptor
            numbers = self._numbers(name)
            if numbers is None:
                continue
            ticks += sum(numbers[11:15])
            if name != "1":
                threads += numbers[17]
                pages += numbers[21]
        if ticks / _TICKS > self._limits.cpu_seconds:
            return "cpu_seconds"
        if pages * _PAGE + self._segment_bytes() > self._limits.memory_bytes:
            return "memory_bytes"
        return "processes" if threads > self._limits.processes else None

    def _numbers(self, name: str) -> list[int] | None:
        """Return the fields of /proc/PID/stat after the name; field 0 is the state."""
        text = self._read(f"{name}/stat")
        fields = text.rpartition(b")")[2].split()
        return [0, *map(int, fields[1:])] if len(fields) > 21 else None

    def _segment_bytes(self) -> int:
        """Return the bytes of System V shared memory segments, attached or not."""
        os.lseek(self._segments, 0, os.SEEK_SET)
        rows = os.read(self._segments, 1 << 20).splitlines()[1:]
        return sum(int(row.split()[14]) for row in rows if re.match(rb"\s*-?\d", row))

    def _read(self, path: str) -> bytes:
        with suppress(OSError):  # the process has ended
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
            with os.fdopen(file, "rb") as opened:
                return opened.read(4096)
        return b""


class _Running:
    """A command on its layers, from the start of its keeper to the end of its last process."""

    def __init__(
        self, plan: PreviewPlan, limits: Limits, started: Keeper, stack: ExitStack
    ) -> None:
        self._plan, self._limits = plan, limits
        self._output = bytearray()
        self._drained = 0
        self._reached: list[str] = []
        self.changes: list[FileChange] = []
        """The changes in all layers, once the preview has finished."""
        self._process, self._control, self._pipe = started.process, started.control, started.output
        try:
            self._control.sendall(plan.to_line())
        except BrokenPipeError:
            raise SandboxError(
                "a process of the preview was killed", hint="run the preview again"
            ) from None
        told, descriptors, _, _ = socket.recv_fds(self._control, LONGEST, 256)
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        document: dict[str, Any] = (
            json.loads(told) if told else {"refused": "its helper process was killed"}
        )
        if "refused" in document:
            raise _refused(document)
        self._whole = bool(document["whole"])
        self._read_only: list[str] = document["read_only"]
        self._layers: list[str] = document["layers"]
        self._reachable: list[str] = document["reachable"]
        self._roots = [tuple(descriptors[at : at + 3]) for at in range(2, len(descriptors), 3)]
        self._watch = Watch(limits, *descriptors[:2])

    def resize(self) -> None:
        """Notify the command that the window of its terminal has another size."""
        self._process.send_signal(signal.SIGWINCH)

    def finish(self) -> Preview:
        """Start the command, wait for its end, and scan for changes."""
        started = time.time()
        self._control.sendall(b"G")
        status = self._wait()
        ended = time.time()
        disk = [os.fstatvfs(roots[1]) for roots in self._roots]
        if any(numbers.f_bavail == 0 for numbers in disk):
            self._reached.append("disk_bytes")
        if any(numbers.f_favail == 0 for numbers in disk):
            self._reached.append("disk_inodes")
        changes, truncated = self._scan()
        self.changes = changes
        timed_out = "wall_seconds" in self._reached
        died_of = -status if status is not None and status < 0 else None
        if status is None:
            died_of = None if timed_out else int(signal.SIGKILL)
        exit_code = 128 + (died_of or 0) if died_of or status is None else status
        execution = Execution(
            exit_code=124 if timed_out else exit_code,
            output=bytes(self._output),
            changes=tuple(changes),
            changes_truncated=truncated,
            started=started,
            ended=ended,
            timed_out=timed_out,
            output_truncated="output_bytes" in self._reached,
            limits_hit=tuple(self._reached),
            signal=died_of,
        )
        behavior = self._recorder(int(started)).behavior(execution)
        moved = _moved(behavior.patch, os.fsencode(self._plan.start))
        diff, diff_truncated = text_diff(changes, self._read, moved)
        return Preview(
            behavior, diff, diff_truncated, self._plan.start, self._whole, tuple(self._layers),
            tuple(self._read_only), self._plan.hidden, tuple(self._reachable),
        )  # fmt: skip

    def _wait(self) -> int | None:
        """Return the command's status after all processes ended; None if killed from outside."""
        waiting: list[int] = [self._control.fileno()]
        if self._pipe is not None:
            waiting.append(self._pipe)
        told = b""
        killed = unknown = False
        while told != b"E" and not told.endswith((b"\nE", b"\nBE")):
            ready, _, _ = select.select(waiting, [], [], LOOK_SECONDS)
            if self._pipe in ready:
                self._drain()
            if waiting[0] in ready:
                more = self._control.recv(64)
                if not more:
                    raise SandboxError(
                        "a process of the preview was killed", hint="run the preview again"
                    )
                told += more
            going_on = b"\n" not in told  # false once only background processes are left
            if not killed and (limit := self._limit(timed=going_on)) is not None:
                self._reached.append(limit)
                self._process.send_signal(signal.SIGTERM)
                killed, unknown = True, going_on
        while self._pipe is not None and self._drain():
            pass
        line, _, end = told.removesuffix(b"E").rpartition(b"\n")
        if end == b"B":
            self._reached.append("background_seconds")
        if line.startswith(b"{"):
            raise _refused(json.loads(line))
        return int(line) if line and not unknown else None

    def _limit(self, *, timed: bool) -> str | None:
        if self._drained > self._limits.drain_bytes:
            return "drain_bytes"
        return self._watch.reached(timed=timed)

    def _drain(self) -> bool:
        """Read some output; return False if there is none."""
        assert self._pipe is not None
        try:
            data = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return False
        room = self._limits.output_bytes - len(self._output)
        self._output += data[:room]
        self._drained += len(data)
        if len(data) > room and "output_bytes" not in self._reached:
            self._reached.append("output_bytes")
        return bool(data)

    def _scan(self) -> tuple[list[FileChange], bool]:
        """Return the changes in all layers, by absolute path, and whether there are more."""
        self._control.settimeout(self._limits.scan_seconds * len(self._layers) + PATIENCE)
        self._control.sendall(b"S")
        changes: list[FileChange] = []
        truncated = False
        with self._control.makefile("rb") as told:
            for layer, roots in zip(self._layers, self._roots, strict=True):
                found, cut = _parse_scan(told)
                truncated |= cut
                for change in found:
                    changes.append(self._placed(change, os.fsencode(layer), roots))
        return [change for change in changes if change.before != change.after], truncated

    def _placed(self, change: FileChange, layer: bytes, roots: tuple[int, ...]) -> FileChange:
        """Return a change with its absolute path, and with the host's owner ids."""
        inside = change.path.lstrip(b"/")
        before, after = change.before, change.after
        if self._plan.own_id:
            before = self._owned(before, roots[0], inside)
            after = self._owned(after, roots[2], inside)
        if not inside and before is not None and after is not None:  # the layer's root itself
            after = replace(after, inode=before.inode, links=before.links)
            if self._plan.uid not in (0, before.uid):  # only an owner could change it
                after = before
        path = layer.rstrip(b"/") + b"/" + inside if inside else layer
        return FileChange(path, before, after)

    def _owned(self, side: FileStat | None, root: int, path: bytes) -> FileStat | None:
        if side is None:
            return None
        uid = self._plan.uid if side.uid == 0 else side.uid
        gid = self._plan.gid if side.gid == 0 else side.gid
        if _NOBODY in (uid, gid):
            with suppress(OSError):
                status = os.lstat(path, dir_fd=root) if path else os.stat(root)
                uid, gid = status.st_uid, status.st_gid
        return replace(side, uid=uid, gid=gid)

    def _read(self, change: FileChange) -> tuple[bytes | None, bytes | None]:
        """Return a file's old and new content, if readable."""
        path = os.fsdecode(change.path)
        layer = max((layer for layer in self._layers if _inside(path, layer)), key=len)
        roots = self._roots[self._layers.index(layer)]
        inside = os.fsencode(os.path.relpath(path, layer))
        before = None if change.before is None else read_at(roots[0], inside)
        return before, None if change.after is None else read_at(roots[2], inside)

    def open_changed(self, path: bytes) -> int:
        """Return a descriptor of a regular file's new version. Errors: OSError."""
        merged, inside = self._merged(path)
        return os.open(inside, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=merged)

    def read_changed_link(self, path: bytes) -> bytes:
        """Return the new target of a symbolic link. Errors: OSError."""
        merged, inside = self._merged(path)
        return os.readlink(inside, dir_fd=merged)

    def _merged(self, path: bytes) -> tuple[int, bytes]:
        """Return a descriptor of a path's layer, and the path in the layer."""
        inner = [layer for layer in self._layers if _inside(os.fsdecode(path), layer)]
        layer = max(inner, key=len)
        merged = self._roots[self._layers.index(layer)][2]
        return merged, os.fsencode(os.path.relpath(os.fsdecode(path), layer))

    def _recorder(self, instant: int) -> Recorder:
        return Recorder(
            start=self._plan.start,
            baseline=None,
            users={user.pw_uid: user.pw_name for user in reversed(pwd.getpwall())},
            groups={group.gr_gid: group.gr_name for group in reversed(grp.getgrall())},
            instant=instant,
        )


def _parse_scan(told: BinaryIO) -> tuple[tuple[FileChange, ...], bool]:
    """Read a scan's report of one layer, and whether there is more. SandboxError if it failed."""
    head = told.readline().decode("ascii", "replace").removeprefix("S").split()
    if len(head) != 4:
        raise SandboxError(
            "the changes could not be read: the scan was killed", hint="run the preview again"
        )
    error, truncated, _, length = map(int, head)
    records = told.read(length)
    if error:
        raise SandboxError(f"the changes could not be read: {os.strerror(error)}")
    return parse_changes(memoryview(records)), bool(truncated)


def _moved(patch: ContextPatch, start: bytes) -> Collection[bytes]:
    """Return the old and new absolute paths of renamed files."""
    names = (keys(path)[1] for move in patch.operations if move[0] == "m" for path in move[1:])
    return {os.path.join(start, name_bytes(name)) for name in names}  # noqa: PTH118 - bytes


def _refused(document: Mapping[str, object]) -> HostError:
    reason = str(document["refused"])
    if "mount proc" in reason and (covered := host_diagnosis.covered_proc()):
        reason += (
            f"; the kernel refuses it because parts of /proc are covered: {', '.join(covered[:3])}"
        )
        return HostError(
            f"this host does not allow previews: {reason}", hint=host_diagnosis.WHOLE_PROC_FIX
        )
    hint = (
        "without root, use a directory of your own that contains no mount points (--root DIR); "
        "`shioenv doctor` lists what this host lacks"
    )
    return HostError(f"this host does not allow previews: {reason}", hint=hint)
