"""Compression is recognised by the contents; damage of any kind is one error."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
import zstandard

from shioenv.files.compressed import DamagedFile, reading, stream_lines, unpacking

TEXT = b"".join(b"echo %d\n" % number for number in range(20_000))
PACKED = {
    "gzip": gzip.compress(TEXT),
    "gzip in two members": gzip.compress(TEXT[:999]) + gzip.compress(TEXT[999:]),
    "Zstandard": zstandard.compress(TEXT),
    "text": TEXT,
}


@pytest.mark.parametrize("content", PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("name", ["list.txt", "list.gz", "list.zst"])
def test_the_content_decides_and_not_the_name(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with unpacking(tmp_path / name) as stream:
        assert stream.peek(5)[:5] == b"echo "
        assert b"".join(stream_lines(stream)) == TEXT


DAMAGED = {
    "gzip cut": PACKED["gzip"][:-9],
    "gzip with another byte": PACKED["gzip"][:100] + b"\xff\xff" + PACKED["gzip"][102:],
    "gzip with a wrong sum": PACKED["gzip"][:-8] + bytes(8),
    "gzip with something behind it": PACKED["gzip"] + b"more",
    "the head of gzip alone": PACKED["gzip"][:3],
    "Zstandard cut": PACKED["Zstandard"][:-9],
    "Zstandard with another byte": PACKED["Zstandard"][:30]
    + b"\xff\xff"
    + PACKED["Zstandard"][32:],
    "the head of Zstandard alone": PACKED["Zstandard"][:4],
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damage_is_one_error_with_its_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(content)
    with (
        pytest.raises(DamagedFile, match="damaged") as caught,
        unpacking(tmp_path / "list") as stream,
    ):
        stream.read()
    assert caught.value.filename == str(tmp_path / "list")


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "list.zst"
    path.write_bytes(zstandard.compress(bytes(1 << 20)))
    with reading(path) as stream, pytest.raises(OSError, match="line 1 is longer than 1,000 bytes"):
        list(stream_lines(stream, 1000))
    path = tmp_path / "list"
    path.write_bytes(b"a\n")
    os.truncate(path, 1 << 40)
    with reading(path) as stream, pytest.raises(OSError, match="line 2 is longer than"):
        list(stream_lines(stream))
