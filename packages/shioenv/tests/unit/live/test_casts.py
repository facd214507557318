"""Recordings of shells: they are parsed again, and their contents cannot control a terminal."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.errors import DatasetStorageError, OutputExistsError
from shioenv.live.asciicast import AsciicastWriter, CurrentLine, Harmless, marker, read_asciicast

SEQUENCES = [
    *("\x1b[31m", "\x1b[2J", "\x1b[?25l", "\x1b7", "\x1bM", "\x1b[1;1H", "plain", "\r\n", "é"),
    *("\x1b]0;title\x07", "\x1b]52;c;eA==\x1b\\", "\x1b[c", "\x1b[6n", "\x1b(0", "\x1bc"),
    *("\x1b[?1000h", "\x1bP1$r\x1b\\", "\x9b31m", "\x07", "\x0e", "\x7f", "\x1b[", "\x1b", "\x1b]"),
]
HARMLESS = re.compile(r"\x1b(?:\[(?:[0-9;]*[A-HJKLMPSTXdfmr@]|\?(?:25|1049|2004)[hl])|[78M])")


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
        header = json.loads(file.read_text().splitlines()[0])
        assert {name: header[name] for name in ("version", "width", "height", "title")} == {
            "version": 2, "width": 9, "height": 3, "title": "title",
        }  # fmt: skip
        read = list(read_asciicast(file))
    assert [event.text for event in read if event.kind == "m"] == [
        "mark", marker("ls", Behavior(2, b"x")),
    ]  # fmt: skip
    for kind in "io":
        whole = b"".join(data for one, data in events if one == kind).decode("utf-8", "replace")
        joined = "".join(event.text for event in read if event.kind == kind)
        assert whole.startswith(joined)
        assert len(whole) - len(joined) <= 1  # a character that was cut
    assert [event.seconds for event in read] == sorted(event.seconds for event in read)


def test_a_damaged_recording_is_read_as_far_as_it_is_one(tmp_path: Path) -> None:
    file = tmp_path / "cast"
    file.write_text('{"version": 2}\n[1, "o", "a"]\n[2, "o"]\n\n["x", "o", "b"]\n[3, "i", "c')
    assert [event.text for event in read_asciicast(file)] == ["a"]
    with pytest.raises(OutputExistsError):
        AsciicastWriter(file, "again")
    with pytest.raises(DatasetStorageError):
        AsciicastWriter(tmp_path / "missing" / "cast", "nowhere")


@given(st.lists(st.sampled_from(SEQUENCES), max_size=8), st.data())
def test_each_escape_that_is_left_is_harmless_however_it_is_cut(
    parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    cut = data.draw(st.integers(0, len(text)))
    harmless = Harmless()
    shown = harmless.of(text[:cut]) + harmless.of(text[cut:])
    left = HARMLESS.sub("", shown)
    assert not re.search(r"[\x00-\x06\x0e-\x1f\x7f-\x9f]", left), (text, shown)
    if "\x1b" not in text.replace("\x1b[31m", ""):
        assert shown.count("plain") == text.count("plain")


def test_what_is_cut_goes_with_the_next_text() -> None:
    harmless = Harmless()
    assert harmless.of("a\x1b[3") == "a"
    assert harmless.of("1mb") == "\x1b[31mb"
    assert harmless.of("\x1b]0;secret") == ""
    assert harmless.of(" title\x07c") == "c"
    assert harmless.of("\x1b]" + "x" * 5000) == ""


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
