"""Recordings of shells: what is written, and lines above a prompt."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.errors import DatasetStorageError, OutputExistsError
from shioenv.live.asciicast import AsciicastWriter, CurrentLine, marker


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("io"), st.binary(max_size=6)), max_size=8))
def test_what_was_shown_and_typed_is_read_again(events: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as top:
        file = Path(top) / "cast"
        with AsciicastWriter(file, "title", rows=3, columns=9) as cast:
            for kind, data in events:
                (cast.write_output if kind == "o" else cast.write_input)(data)
            cast.write_marker("mark")
            cast.write_behavior("ls", Behavior(2, b"x"))
        cast.close()
        header, *read = map(json.loads, file.read_text().splitlines())
        assert {name: header[name] for name in ("version", "width", "height", "title")} == {
            "version": 2, "width": 9, "height": 3, "title": "title",
        }  # fmt: skip
    assert [text for _, kind, text in read if kind == "m"] == [
        "mark", marker("ls", Behavior(2, b"x")),
    ]  # fmt: skip
    for kind in "io":
        whole = b"".join(data for one, data in events if one == kind).decode("utf-8", "replace")
        joined = "".join(text for _, one, text in read if one == kind)
        assert whole.startswith(joined)
        assert len(whole) - len(joined) <= 1  # a character that was cut
    assert read == sorted(read, key=lambda event: event[0])


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "cast"
    file.touch()
    with pytest.raises(OutputExistsError):
        AsciicastWriter(file, "again")
    with pytest.raises(DatasetStorageError):
        AsciicastWriter(tmp_path / "missing" / "cast", "nowhere")


@pytest.mark.parametrize(
    ("shown", "kept"),
    [
        ("out\r\n~# ", "~# "),
        ("\x1b[H\x1b[2J~# ", "~# "),
        ("~# \x1b[31mec", "~# \x1b[31mec"),
        ("bye\r\n", ""),
    ],
)
def test_lines_are_inserted_above_the_prompt(shown: str, kept: str) -> None:
    for cut in range(len(shown) + 1):
        line = CurrentLine()
        line.follow(shown[:cut])
        line.follow(shown[cut:])
        assert line.above([]) == ""
        inserted = line.above(["  added   x", "  removed y"])
        assert inserted == f"\r\x1b[2K\x1b[2m  added   x\r\n  removed y\x1b[0m\r\n{kept}"
