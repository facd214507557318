"""A supervisor's replies are parsed as they were meant; all other bytes are an internal error."""

from __future__ import annotations

import errno
import os
import re
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.errors import SandboxError
from shioenv.sandbox.base import Execution, FileChange, FileStat, Limits
from shioenv.sandbox.change_records import CHANGE
from shioenv.sandbox.namespaces import wire
from shioenv.sandbox.namespaces.lower import exhausted, opening_failed
from shioenv.system.host_diagnosis import failure, no_user_namespace

LIMITS = Limits(output_bytes=4096)

words = st.integers(0, 2**32 - 1)
stats = st.builds(
    FileStat,
    mode=words,
    uid=words,
    gid=words,
    size=st.integers(0, 2**64 - 1),
    links=words,
    mtime_ns=st.integers(-(2**63), 2**63 - 1).map(lambda seconds: seconds * 1_000_000_000 + 7),
    inode=st.integers(0, 2**56 - 1),
    rdev=st.builds(os.makedev, st.integers(0, 4095), st.integers(0, 2**20 - 1)),
    target=st.none() | st.binary(min_size=1, max_size=9),
    digest=st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex),
)
changes = st.lists(
    st.builds(
        FileChange,
        path=st.binary(min_size=1, max_size=20),
        before=st.none() | stats,
        after=stats,
    ),
    max_size=4,
    unique_by=lambda change: change.path,
)


def record(kind: bytes, path: bytes, stat: FileStat) -> bytes:
    seconds, nanoseconds = divmod(stat.mtime_ns, 1_000_000_000)
    target = stat.target or b""
    return b"".join(
        [
            kind,
            struct.pack("=I", len(path)),
            path,
            CHANGE.pack(
                *(stat.mode, stat.uid, stat.gid, stat.links, stat.size, seconds, nanoseconds),
                *(stat.inode, os.major(stat.rdev), os.minor(stat.rdev)),
            ),
            struct.pack("=I", len(target)),
            target,
            bytes([stat.digest is not None]),
            bytes.fromhex(stat.digest or ""),
        ]
    )


def records(changed: list[FileChange]) -> bytes:
    return b"".join(
        record(kind, change.path, stat)
        for change in changed
        for kind, stat in ((b"B", change.before), (b"A", change.after))
        if stat is not None
    )


def reply(output: bytes, state: bytes, listed: bytes, status: int = 0) -> bytes:
    head = wire.Reply(0, 0, status, 0, 1, 2, 3, len(output), 0, len(state), len(listed))
    return wire.REPLY.pack(*head) + output + state + listed


def read(said: bytes) -> Execution:
    """Parse these bytes of a supervisor that sends nothing after them."""
    left = said

    def receive(least: int, so_far: bytes) -> bytes:
        nonlocal left
        data, left = so_far + left, b""
        if len(data) < least:
            raise ConnectionResetError("end of file")
        return data

    answer, body = wire.read_reply(receive, LIMITS)
    return answer.execution(body, LIMITS, separate=False)


@given(output=st.binary(max_size=99), state=st.binary(max_size=99), changed=changes)
def test_a_reply_is_read_as_it_was_meant(
    output: bytes, state: bytes, changed: list[FileChange]
) -> None:
    execution = read(reply(output, state + b"\0cwd\n/tmp", records(changed), 3 << 8))
    assert execution.exit_code == 3
    assert execution.output == output
    assert (execution.shell, execution.cwd) == (state, b"/tmp")
    assert list(execution.changes) == changed


edits = st.lists(
    st.tuples(st.integers(0, 999), st.binary(max_size=9), st.integers(0, 9)), min_size=1, max_size=5
)


@given(changed=changes, edits=edits)
def test_whatever_the_records_are_they_are_read_or_refused(
    changed: list[FileChange], edits: list[tuple[int, bytes, int]]
) -> None:
    listed = records(changed) or b"?"
    for at, put, removed in edits:
        at %= len(listed) + 1
        listed = listed[:at] + put + listed[at + removed :]
    with suppress(SandboxError):
        read(reply(b"output", b"state\0cwd\n/", listed))


@given(changed=changes.filter(bool), cut=st.integers(1, 60))
def test_records_that_are_cut_off_are_refused(changed: list[FileChange], cut: int) -> None:
    with pytest.raises(SandboxError, match="change records"):
        read(reply(b"", b"", records(changed)[:-cut]))


@given(said=st.binary(max_size=200), changed=changes, at=st.integers(0, 99))
def test_whatever_is_said_is_read_or_refused(
    said: bytes, changed: list[FileChange], at: int
) -> None:
    whole = reply(b"output", b"state", records(changed))
    with suppress(SandboxError, ConnectionError):
        read(whole[:at] + said + whole[at + len(said) :])


@given(head=st.binary(min_size=wire.REPLY.size, max_size=wire.REPLY.size))
def test_any_head_is_read_or_refused(head: bytes) -> None:
    with suppress(SandboxError, ConnectionError):
        read(head)


@pytest.mark.parametrize("field", ["output", "errors", "state", "changes"])
def test_nothing_is_waited_for_that_no_run_can_give(field: str) -> None:
    head = wire.Reply(0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0)._replace(**{f"{field}_length": 2**32 - 1})
    asked: list[int] = []

    def receive(least: int, so_far: bytes) -> bytes:
        asked.append(least)
        return wire.REPLY.pack(*head)

    with pytest.raises(SandboxError, match="4294967295"):
        wire.read_reply(receive, LIMITS)
    assert asked == [wire.REPLY.size]


def test_bytes_after_a_reply_are_no_part_of_it() -> None:
    with pytest.raises(SandboxError, match="longer than announced"):
        read(reply(b"", b"", b"") + b"x")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("E13 mount overlay (create)", (13, "mount overlay (create)")),
        ("", (0, "")),
        ("E² unshare", (0, "unshare")),
        ("E" + "9" * 4000, (0, "")),
        ("E-1 x", (0, "x")),
        ("\ufffd\ufffd", (0, "")),
    ],
)
def test_a_last_line_is_understood_or_nothing_is(line: str, meant: tuple[int, str]) -> None:
    assert failure(line) == meant


def test_no_last_line_of_a_helper_is_an_error_of_its_own() -> None:
    for line in ("E²", "E" + "9" * 4000, "E-1 x", ""):
        assert "user namespaces" in str(no_user_namespace(line))


def test_errors_about_exhausted_limits_name_the_limit() -> None:
    full = opening_failed(f"E{errno.EAGAIN} fork init")
    assert "fork init: Resource temporarily unavailable" in str(full)
    assert full.hint is not None
    assert re.search(r"process(es)? .*: close shells .*, or raise this limit$", full.hint)
    short = exhausted(errno.ENOMEM)
    assert short is not None
    assert re.match(r"[\d,]+ of [\d,]+ MB of memory are available, .* close shells", short)
    assert exhausted(errno.EIO) is None
