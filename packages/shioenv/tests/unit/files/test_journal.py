"""A journal keeps complete entries, whatever happened to the rest of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shioenv.files.journal import Journal


def known(content: bytes) -> tuple[int, str] | None:
    number, text = json.loads(content)
    return None if text == "refused" else (number, text)


def opened(path: Path, notes: list[str] | None = None) -> Journal[str]:
    return Journal(path, known, (notes if notes is not None else []).append)


def written(path: Path, *entries: tuple[int, str], end: bytes = b"") -> None:
    journal = opened(path)
    for number, text in entries:
        journal.append(number, text, json.dumps([number, text]).encode() + end)
    journal.close()


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_lines_come_back_with_or_without_their_end_under_the_checksum(
    tmp_path: Path, end: bytes
) -> None:
    written(tmp_path / "j", (3, "c"), (1, "a"), end=end)
    journal = opened(tmp_path / "j")
    assert journal.values == {3: "c", 1: "a"}
    assert journal.read(1) == b'[1, "a"]' + end
    journal.remove()
    assert not (tmp_path / "j").exists()


def test_of_two_lines_of_a_number_the_later_counts(tmp_path: Path) -> None:
    written(tmp_path / "j", (1, "old"), (2, "b"), (1, "new"))
    journal = opened(tmp_path / "j")
    assert journal.values == {1: "new", 2: "b"}
    assert journal.read(1) == b'[1, "new"]'
    journal.close()


def test_damaged_lines_and_a_torn_end_are_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, (1, "a"), (2, "refused"), (3, "c"), (4, "d"))
    path.write_bytes(path.read_bytes().replace(b'"c"', b'"x"'))
    os.truncate(path, path.stat().st_size - 1)
    notes: list[str] = []
    journal = opened(path, notes)
    assert journal.values == {1: "a"}
    assert notes == [
        f"{path}: skipped 2 damaged lines; the others are kept",
        f"{path}: removed an incomplete line of 17 bytes at the end",
    ]
    journal.append(5, "e", b'[5, "e"]')
    journal.close()
    journal = opened(path)
    assert journal.values == {1: "a", 5: "e"}
    journal.close()
