"""Only regular files are opened, and reading a whole file is bounded."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from shioenv.files.durable import atomic_write
from shioenv.files.regular import LARGEST, lines_of, open_regular, read_regular
from support.needs import needs


def fifo(place: Path) -> Path:
    os.mkfifo(place / "pipe")
    return place / "pipe"


def link_to_fifo(place: Path) -> Path:
    fifo(place)
    (place / "link").symlink_to("pipe")
    return place / "link"


def listening(place: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "socket"))
    return place / "socket"


OTHERS = {
    "a named pipe": fifo,
    "a link to one": link_to_fifo,
    "a socket": listening,
    "a device without an end": lambda place: Path("/dev/zero"),
    "a device that is empty": lambda place: Path("/dev/null"),
    "a terminal": lambda place: Path("/dev/ptmx"),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_is_no_regular_file_is_refused_by_its_kind(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="not a regular file") as caught:
        open_regular(make(tmp_path))
    assert caught.value.strerror


def test_a_directory_is_refused_as_open_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)


def test_a_file_that_is_missing_is_told_as_open_tells_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


def test_a_file_is_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"text"


def test_a_file_is_read_up_to_the_bound_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes") as caught:
        read_regular(path, 4)
    assert caught.value.errno == errno.EFBIG


def test_a_file_with_a_hole_of_a_terabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match=f"larger than {LARGEST:,} bytes"):
        read_regular(path)


def test_what_the_kernel_calls_empty_is_read() -> None:
    assert b"Name:" in read_regular("/proc/self/status")


def link_to_file(place: Path) -> Path:
    (place / "target").write_text("kept\n")
    (place / "link").symlink_to("target")
    return place / "link"


def link_to_nothing(place: Path) -> Path:
    (place / "link").symlink_to("nothing")
    return place / "link"


def null(place: Path) -> Path:
    os.mknod(place / "null", 0o666 | stat.S_IFCHR, Path("/dev/null").stat().st_rdev)
    return place / "null"


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (fifo, "a named pipe"), (listening, "a socket"), (link_to_fifo, "a link"),
        (link_to_file, "a link"), (link_to_nothing, "a link"),
        pytest.param(null, "a device", marks=needs("root")),
    ],
)  # fmt: skip
def test_what_is_no_regular_file_is_not_replaced(
    tmp_path: Path, made: Callable[[Path], Path], kind: str
) -> None:
    path = made(tmp_path)
    before = {each: each.lstat() for each in tmp_path.iterdir()}
    with pytest.raises(OSError, match=f"it is {kind}, not a regular file") as caught:
        atomic_write(path, b"new")
    assert caught.value.filename == str(path)
    assert {each: each.lstat().st_ino for each in tmp_path.iterdir()} == {
        each: status.st_ino for each, status in before.items()
    }


def test_a_directory_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        atomic_write(tmp_path, b"new")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []), ("\n", [""]), ("a", ["a"]), ("a\nb\n", ["a", "b"]), ("a\r\nb\r\n", ["a", "b"]),
        ("a\n\nb\n\n", ["a", "", "b", ""]), ("a\rb\n", ["a\rb"]),
        *((f"a{other}b\n", [f"a{other}b"]) for other in "\f\v\x1c\x1d\x1e\x85\u2028\u2029"),
    ],
)  # fmt: skip
def test_lines_end_in_newlines_alone(text: str, lines: list[str]) -> None:
    assert lines_of(text) == lines
