"""The parts of a preview: its plan, mounts, limits, hidden paths, the keeper's words, streams."""

from __future__ import annotations

import errno
import json
import os
import pty
import pwd
import signal
import socket
import stat
import struct
import tempfile
import termios
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.patch import ContextPatch
from shioenv.errors import HostError, SandboxError, UsageError
from shioenv.sandbox.base import FileChange, FileStat
from shioenv.system import host_diagnosis
from shioenv_agents.preview import inside, keeper, layered_run, mounts
from shioenv_agents.preview.layered_run import USUAL_LIMITS, Watch
from shioenv_agents.preview.mounts import PreviewPlan
from shioenv_agents.preview.terminal_state import kept_streams
from shioenv_agents.preview.texts import LARGEST_TEXT, read_at
from support.waiting import wait_until

NAMES = st.binary(max_size=6).filter(lambda name: b"\0" not in name).map(os.fsdecode)
PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def plan(**changes: Any) -> PreviewPlan:
    made = PreviewPlan(
        command=("true",), start="/", directories=("/",), hidden=(), sockets=(), whole=True,
        processes=9, disk_bytes=1, disk_inodes=1, background_seconds=0.1,
        scan_seconds=1.0, open_files=(1, 2), own_id=False, uid=0, gid=0, parent=1,
    )  # fmt: skip
    return replace(made, **changes)


@given(st.lists(NAMES, max_size=3), st.booleans(), st.integers(0, 1 << 40))
def test_a_plan_is_one_line_that_is_read_again(names: list[str], flag: bool, number: int) -> None:
    given_plan = plan(command=tuple(names), hidden=tuple(names), whole=flag, disk_bytes=number)
    line = given_plan.to_line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert PreviewPlan.from_line(line) == given_plan
    assert {each.name for each in fields(PreviewPlan)} == set(json.loads(line))


@given(st.binary(min_size=1, max_size=8).filter(lambda name: b"\0" not in name), st.booleans())
def test_a_line_of_mounts_is_read_as_the_kernel_writes_it(name: bytes, writable: bool) -> None:
    path = b"".join(
        b"\\%03o" % byte if byte in b" \t\n\r\v\f\\" else bytes([byte]) for byte in name
    )
    line = b"36 35 98:0 / /%s %s,noatime master:1 - ext4 /dev/x rw,errors=continue"
    rights = b"rw" if writable else b"ro"
    assert mounts._parse_mount(line % (path, rights)) == (b"/" + name, "ext4", writable)


def test_only_mounts_with_somebodys_files_are_layered(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        (b"/", "ext4", True), (b"/tmp", "tmpfs", True), (b"/tmp", "tmpfs", False),
        (b"/proc", "proc", True), (b"/proc/x", "tmpfs", True), (b"/var/x", "nsfs", True),
        (b"/usr", "ext4", False), (b"/no such", "ext4", True), (b"/developers", "ext4", True),
    ]  # fmt: skip
    monkeypatch.setattr(mounts, "_mount_points", lambda: iter(points))
    monkeypatch.setattr(mounts, "_opened", lambda path: None if b" " in path else 7)
    found = [(one.path, one.writable) for one in mounts._mounts()]
    assert found == [(b"/tmp", True), (b"/usr", False), (b"/developers", True)]


@given(st.text("/ab", max_size=6), st.text("/ab", max_size=6))
def test_inside_is_by_whole_names(path: str, directory: str) -> None:
    path, directory = (os.path.normpath("/" + name.strip("/")) for name in (path, directory))
    expected = Path(path).is_relative_to(directory)
    assert mounts._inside(path.encode(), directory.encode()) is expected
    assert layered_run._inside(path, directory) is expected


def test_sockets_that_may_be_written_to_are_special(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("fifo")
    place = mounts._special(bytes(tmp_path / "fifo"))
    assert place is not None
    os.close(place)
    for name in ("file", "link", "missing"):
        assert mounts._special(bytes(tmp_path / name)) is None


def stat_line(ticks: int, threads: int, pages: int) -> str:
    fields = ["0"] * 50
    for at, value in {13: ticks // 2, 15: ticks - ticks // 2, 19: threads, 23: pages}.items():
        fields[at] = str(value)
    return " ".join(["7", "(a) b (c)", "S", *fields[3:]])


PROCESSES = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 9), st.integers(0, 900)), min_size=1, max_size=4
)


@settings(max_examples=40)
@given(PROCESSES, st.integers(0, 100), st.integers(1, 9), st.integers(1, 2000), st.integers(1, 25))
def test_the_limit_that_all_processes_reach_together_is_named(
    processes: list[tuple[int, int, int]], segment: int, seconds: int, pages: int, most: int
) -> None:
    limits = replace(USUAL_LIMITS, cpu_seconds=seconds, memory_bytes=pages * PAGE, processes=most)
    with tempfile.TemporaryDirectory() as top:
        for number, (ticks, threads, used) in enumerate(processes, 1):
            Path(top, str(number)).mkdir()
            Path(top, str(number), "stat").write_text(stat_line(ticks, threads, used))
        Path(top, "77").mkdir()  # has ended
        Path(top, "self").mkdir()
        row = " ".join(["0", "1", *["0"] * 12, str(segment * PAGE), "0"])
        Path(top, "segments").write_text(f"key shmid size rss swap\n{row}\nno row\n")
        proc, file = os.open(top, os.O_RDONLY), os.open(f"{top}/segments", os.O_RDONLY)
        reached = Watch(limits, proc, file).reached(timed=False)
        os.close(proc)
        os.close(file)
    expected = None
    if sum(threads for _, threads, _ in processes[1:]) > most:
        expected = "processes"
    if sum(used for _, _, used in processes[1:]) + segment > pages:
        expected = "memory_bytes"
    if sum(ticks for ticks, _, _ in processes) / TICKS > seconds:
        expected = "cpu_seconds"
    assert reached == expected


def test_time_counts_while_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "segments").write_text("key\n")
    proc, file = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path / "segments", os.O_RDONLY)
    watch = Watch(replace(USUAL_LIMITS, wall_seconds=1e-9), proc, file)
    assert watch.reached(timed=True) == "wall_seconds"
    assert watch.reached(timed=False) is None
    os.close(proc)
    os.close(file)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the only user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr(pwd, "getpwall", list)
    for name in (".ssh", ".aws"):
        (tmp_path / name).mkdir()
    (tmp_path / "token").write_text("")
    return tmp_path


def test_paths_are_hidden_and_shown_by_their_real_names(home: Path) -> None:
    usual = (str(home / ".aws"), str(home / ".ssh"))
    assert layered_run._hidden([], []) == usual
    (home / "link").symlink_to("token")
    assert layered_run._hidden(["~/link"], ["~/.aws"]) == (usual[1], str(home / "token"))
    with pytest.raises(UsageError, match="--hide /no/such does not exist"):
        layered_run._hidden(["/no/such"], [])
    with pytest.raises(UsageError, match="is not a hidden path") as caught:
        layered_run._hidden([], [str(home / ".ssj")])
    assert ".ssh" in (caught.value.hint or "")


def test_homes_and_the_directories_to_layer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert layered_run._homes() == {home}
    other = pwd.struct_passwd(("other", "x", 7, 7, "", "/other", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", {"other": other}.__getitem__)
    monkeypatch.setattr(pwd, "getpwall", lambda: [other])
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    assert layered_run._homes() == {home}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert layered_run._homes() == {home, Path("/other")}
    assert layered_run._directories("/here") == (str(home), "/here")
    monkeypatch.setenv("HOME", "/")
    assert layered_run._directories("/here") == ("/here",)


@pytest.mark.parametrize(
    ("capabilities", "uid", "may"),
    [("0000000000200000", 0, True), ("0000000000000000", 0, False), ("0000000000200000", 7, False)],
)
def test_who_may_mount(
    capabilities: str, uid: int, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"Name:\tx\nCapPrm:\t00000000ffffffff\nCapEff:\t{capabilities}\n"
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert keeper.may_mount() is may


def test_sockets_are_listed_by_the_real_names_of_their_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(".")
    rows = [b"Num", b"0: 2 0 0 1 1 9 %s/link/a b" % bytes(tmp_path), b"0: 2 0 0 1 1 9 @abstract",
            b"0: 2 0 0 1 1 9", b"0: 2 0 0 1 1 9 /top"]  # fmt: skip
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"\n".join(rows))
    assert layered_run._sockets() == tuple(sorted(["/top", f"{tmp_path}/a b"]))


def test_wrong_usage_starts_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    for words, options, said in (
        ([], {}, "no command"),
        (["true"], {"root": "/no/such"}, "--root /no/such is not a directory"),
        (["true"], {"root": ".ssh"}, "is inside the hidden path"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            layered_run.preview(words, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("head", "said"),
    [(b"", "the scan was killed"), (b"S0 0 1\n", "killed"), (b"S13 0 0 0\n", "Permission denied")],
)
def test_a_scan_that_failed_is_an_error(head: bytes, said: str) -> None:
    with pytest.raises(SandboxError, match=said):
        layered_run._parse_scan(BytesIO(head))
    assert layered_run._parse_scan(BytesIO(b"S0 1 0 0\nmore")) == ((), True)


def test_names_that_moved_are_absolute() -> None:
    patch = ContextPatch((("m", "/fs/a", "/fs/~1b"), ("r", "/fs/c")))
    assert layered_run._moved(patch, b"/start") == {b"/start/a", b"/b"}


def test_a_refusal_names_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    error = layered_run._refused({"refused": "make namespaces: No space left on device"})
    assert isinstance(error, HostError)
    assert "this host does not allow previews: make namespaces" in str(error)
    assert "--root DIR" in (error.hint or "")
    monkeypatch.setattr(host_diagnosis, "covered_proc", lambda: ["a", "b", "c", "d"])
    covered = layered_run._refused({"refused": "mount proc on /x: Operation not permitted"})
    assert "covered: a, b, c (" in str(covered)
    assert covered.hint == host_diagnosis.WHOLE_PROC_FIX


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("sh", errno.EACCES, errno.EACCES), ("no-such", errno.EACCES, errno.ENOENT),
        ("/no-such", errno.EACCES, errno.EACCES), ("no-such", errno.ENOEXEC, errno.ENOEXEC),
    ],
)  # fmt: skip
def test_a_command_behind_a_closed_directory_is_not_found(
    name: str, number: int, expected: int
) -> None:
    assert inside._found_error(name, number) == expected


class Keeper:
    """The other end of a running preview: the test chooses the keeper's messages."""

    def __init__(self, limit: str | None = None, capture: bool = False, **changes: Any) -> None:
        limits = replace(USUAL_LIMITS, **changes.pop("limits", {}))
        self.signals: list[int] = []
        ours, self.socket = socket.socketpair()
        running = layered_run._Running.__new__(layered_run._Running)
        running._plan, running._limits = plan(**changes), limits
        running._output, running._drained, running._reached = bytearray(), 0, []
        running._control, running._pipe = ours, None
        running._process = SimpleNamespace(send_signal=self.signals.append)  # type: ignore
        running._watch = SimpleNamespace(reached=lambda *, timed: limit)  # type: ignore
        if capture:
            running._pipe, self.output = os.pipe()
            os.set_blocking(running._pipe, False)
        self.running = running
        self.kept = ours


@pytest.mark.parametrize(
    ("said", "status", "reached"),
    [
        (b"3\nE", 3, []), (b"-9\nE", -9, []), (b"0\nBE", 0, ["background_seconds"]),
        (b"E", None, []), (b"\nE", None, []),
    ],
)  # fmt: skip
def test_the_keeper_says_how_the_command_ended(
    said: bytes, status: int | None, reached: list[str]
) -> None:
    keeper = Keeper()
    for byte in said:
        keeper.socket.send(bytes([byte]))
    assert keeper.running._wait() == status
    assert keeper.running._reached == reached


def test_a_keeper_that_refuses_or_is_killed_is_an_error() -> None:
    refusing, killed = Keeper(), Keeper()
    refusing.socket.send(b'{"refused": "no"}\nE')
    with pytest.raises(HostError, match="this host does not allow previews: no"):
        refusing.running._wait()
    killed.socket.close()
    with pytest.raises(SandboxError, match="a process of the preview was killed"):
        killed.running._wait()


@pytest.mark.parametrize(("early", "status"), [(b"", None), (b"3\n", 3)])
def test_a_limit_ends_the_command_once(early: bytes, status: int | None) -> None:
    keeper = Keeper("memory_bytes")
    keeper.socket.send(early)

    def answer() -> None:
        wait_until(lambda: keeper.signals, "the end by a limit")
        keeper.socket.send(b"E" if early else b"0\nE")

    thread = threading.Thread(target=answer)
    thread.start()
    assert keeper.running._wait() == status
    thread.join()
    assert keeper.signals == [signal.SIGTERM]
    assert keeper.running._reached == ["memory_bytes"]


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=4), st.integers(1, 20))
def test_output_is_kept_to_its_bound_and_counted(pieces: list[bytes], most: int) -> None:
    keeper = Keeper(capture=True, limits={"output_bytes": most})
    for piece in pieces:
        os.write(keeper.output, piece)
    keeper.socket.send(b"0\nE")
    assert keeper.running._wait() == 0
    whole = b"".join(pieces)
    assert bytes(keeper.running._output) == whole[:most]
    assert keeper.running._reached == (["output_bytes"] if len(whole) > most else [])
    assert keeper.running._drained == len(whole)
    assert keeper.running._pipe is not None
    for end in (keeper.output, keeper.running._pipe):
        os.close(end)
    keeper.socket.close()
    keeper.kept.close()


def test_owners_are_the_hosts_again(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    status = (tmp_path / "f").stat()
    side = FileStat(stat.S_IFREG | 0o644, 0, 65534, 0, 1, 0, 5)
    directory = FileStat(stat.S_IFDIR | 0o755, 1000, 1000, 40, 2, 0, 5)
    keeper = Keeper(own_id=True, uid=1000, gid=1000)
    root = os.open(tmp_path, os.O_RDONLY)
    placed = keeper.running._placed(FileChange(b"/f", None, side), b"/layer", (root,) * 3)
    assert placed.path == b"/layer/f"
    assert placed.after is not None
    assert (placed.after.uid, placed.after.gid) == (status.st_uid, status.st_gid)
    changed = replace(directory, mtime_ns=9, inode=6, links=3)
    own = keeper.running._placed(FileChange(b"/", directory, changed), b"/", (root,) * 3)
    assert own.path == b"/"
    assert own.after == replace(directory, mtime_ns=9)
    others = Keeper(uid=1000).running
    theirs = replace(directory, uid=7)
    kept = others._placed(FileChange(b"/", theirs, replace(theirs, mtime_ns=9)), b"/x", (root,) * 3)
    assert (kept.path, kept.after) == (b"/x", theirs)
    os.close(root)


def test_contents_are_read_from_regular_files_alone(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * (LARGEST_TEXT + 1))
    (tmp_path / "link").symlink_to("f")
    os.mkfifo(tmp_path / "fifo")
    root = os.open(tmp_path, os.O_RDONLY)
    assert len(read_at(root, b"f") or b"") == LARGEST_TEXT
    for name in (b"link", b"fifo", b"missing", b"."):
        assert read_at(root, name) is None
    keeper = Keeper()
    keeper.running._layers = ["/", "/a"]
    keeper.running._roots = [(-1, -1, -1), (root, -1, root)]
    side = FileStat(stat.S_IFREG | 0o644, 0, 0, 1, 1, 0, 5)
    before, after = keeper.running._read(FileChange(b"/a/f", side, None))
    assert (len(before or b""), after) == (LARGEST_TEXT, None)
    os.close(root)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal's two ends; the second one is standard input."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = os.dup(0)
    os.dup2(theirs, 0)
    yield ours, theirs
    os.dup2(before, 0)
    for end in (before, ours, theirs):
        os.close(end)


def test_a_terminal_and_flags_are_put_back(terminal: tuple[int, int]) -> None:
    _, theirs = terminal
    before = termios.tcgetattr(theirs)
    resized: list[bool] = []
    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGWINCH)]
    with kept_streams() as on_resize:
        on_resize.append(lambda: resized.append(True))
        changed = termios.tcgetattr(theirs)
        changed[3] = 0
        termios.tcsetattr(theirs, termios.TCSANOW, changed)
        termios.tcsetwinsize(theirs, (5, 6))
        os.set_blocking(0, False)
        os.kill(os.getpid(), signal.SIGWINCH)
        wait_until(lambda: resized, "the signal")
    assert termios.tcgetattr(theirs) == before
    assert termios.tcgetwinsize(theirs) == (24, 80)
    assert os.get_blocking(0)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGWINCH)] == handlers


def test_the_size_that_a_user_gave_a_window_stays(terminal: tuple[int, int]) -> None:
    import fcntl

    ours, theirs = terminal
    with kept_streams():
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 30, 90, 900, 600))
    assert termios.tcgetwinsize(theirs) == (30, 90)


def test_another_thread_keeps_streams_without_signals() -> None:
    handlers = []

    def keep() -> None:
        with kept_streams():
            handlers.append(signal.getsignal(signal.SIGWINCH))

    thread = threading.Thread(target=keep)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGWINCH)]


def test_a_file_is_fed_through_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"given" * 20_000)
    before, given_file = os.dup(0), os.open(tmp_path / "given", os.O_RDONLY)
    os.dup2(given_file, 0)
    reading = None
    try:
        reading = keeper.standard_input()
        assert reading is not None
        assert stat.S_ISFIFO(os.fstat(reading).st_mode)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read() == b"given" * 20_000
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(given_file)


def test_a_pipe_is_passed_on_as_it_is() -> None:
    before = os.dup(0)
    ends = os.pipe()
    os.dup2(ends[0], 0)
    try:
        assert keeper.standard_input() is None
    finally:
        os.dup2(before, 0)
        for end in (before, *ends):
            os.close(end)
