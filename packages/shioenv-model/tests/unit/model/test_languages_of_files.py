"""Behavior of file languages, with the real programs as the oracle."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shioenv_model.bash.work import answering
from shioenv_model.memory.column_tables import Tables
from shioenv_model.memory.functions.dates import parse_date
from shioenv_model.memory.functions.language import Interpretation, Language
from shioenv_model.memory.functions.listing import (
    IN_COLUMNS,
    IN_DETAIL,
    LISTING,
    ListedFile,
    format_listing,
    in_rows,
    ordered,
)
from shioenv_model.memory.functions.walk import WALK
from shioenv_model.memory.interpret import Interpreter
from shioenv_model.memory.rewrite import Kept
from support.seen import Seen
from support.small_world import small_world, taken

ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
NOW = datetime(2025, 10, 16, 19, 43, tzinfo=UTC)


def real(*words: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, env=ENVIRONMENT, cwd=cwd, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-29", "2024-02-29 12:34", "2024-02-29T01:02:03", "12/25/2024", "12/25/24 6pm",
        "13-Sep-2024", "Sep 13 2024", "Sep 13, 2024", "5 March 2023 14:05", "20240229", "@0",
        "@-86400", "@1234567890", "2024-02-29 + 1 year", "2024-02-29 1 month ago",
        "2025-01-31 1 month", "2024-02-29 - 3 days", "2024-05-01 next week", "2024-05-01 last year",
        "2024-05-01 10:00 90 minutes", "2024-05-01 2 hours ago", "2024-05-01 12am",
        "2024-05-01 12:30pm", "2024-05-01 UTC", "2024-05-01 fortnight", "2024-05-01 tomorrow",
        "2024-05-01 yesterday", "Jan 1 1970", "2024-12-31 1 week 2 days ago", "2024-05-01 09:05Z",
        "2024-05-01 third month", "2024-05-01 1 sec ago 1 min",
    ],
)  # fmt: skip
def test_a_date_is_read_as_the_program_reads_it(text: str) -> None:
    assert f"{parse_date(text, NOW):%F %T}\n" == real("date", "-d", text, "+%F %T")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("now", "2025-10-16 19:43"), ("today", "2025-10-16 19:43"), ("", "2025-10-16 00:00"),
        ("yesterday", "2025-10-15 19:43"), ("monday", "2025-10-20 00:00"),
        ("thursday", "2025-10-16 00:00"), ("next thursday", "2025-10-23 00:00"),
        ("last friday", "2025-10-10 00:00"), ("7:30", "2025-10-16 07:30"),
        ("2 hour ago - 3 minute", "2025-10-16 17:40"), ("Dec 31", "2025-12-31 00:00"),
        ("tomorrow 09:00", "2025-10-17 09:00"), ("-1 year", "2024-10-16 19:43"),
    ],
)  # fmt: skip
def test_a_date_is_read_from_now(text: str, said: str) -> None:
    """As the sandbox reads them at this instant (`date -d TEXT '+%F %H:%M'`)."""
    assert f"{parse_date(text, NOW):%F %H:%M}" == said


@pytest.mark.parametrize(
    "text",
    [
        "foo", "2024-13-01", "2023-02-29", "25:00", "ago", "13pm", "@", "--1 day",
        "9" * 400 + " days", "1 day " * 3_000 + "x", "noon", "10:00 + 90 minutes",
    ],
)  # fmt: skip
def test_what_is_no_date_is_not_read(text: str) -> None:
    with pytest.raises((ValueError, LookupError, OverflowError)):
        parse_date(text, NOW)


NAMES = (
    "a", "b1", "b10", "b2", "b02", ".bashrc", ".bash_history", ".config", "a.tar.gz", "a.txt", "A",
    "file-1.9.log", "file-1.10.log", "x~", "x", "dir.d", "é.txt", "a b", "1", "10", "9",
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        ("-A", {}), ("-Av", {"order": "version"}), ("-AX", {"order": "extension"}),
        ("-Avr", {"order": "version", "backwards": True}), ("-Am", {"form": "commas"}),
        ("-AC", {"form": "columns"}), ("-Ax", {"form": "across"}), ("-AQ", {"quoting": "c"}),
        ("-Ab", {"quoting": "escape"}), ("-ACw40", {"form": "columns", "width": 40}),
        ("-Axw25", {"form": "across", "width": 25}), ("-ACw1", {"form": "columns", "width": 1}),
    ],
)  # fmt: skip
def test_names_are_laid_out_as_the_program_lays_them_out(
    options: str, plan: dict[str, object], tmp_path: Path
) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    tree = small_world().state().before
    entry = tree.entry("a.txt")
    assert entry is not None
    here = taken("ls").tree
    assert here is not None
    files = ordered([ListedFile(name, entry) for name in NAMES], plan)
    assert format_listing(files, plan, None, here) == real("ls", options, cwd=tmp_path)


def test_no_names_take_no_row() -> None:
    assert in_rows([]) == ""


def run(language: Language, text: str) -> str | None:
    """Return a command's output, with options interpreted as in the real programs."""
    of = {each.name: each for each in language.meanings if each.valued} | {
        each.name: each for each in language.meanings if not each.valued
    }
    meanings = {
        "-name": "of this name", "-o": "or", "-a": "and", "-type": "of this kind",
        "-not": "not", "-prune": "go no deeper", "-print": "print", "-l": "details",
        "-path": "of this path", "-size": "of this size", "-R": "all that is inside",
        "-C": "in columns", "-b": "escaped",
    }  # fmt: skip
    made = taken(text)
    said = tuple((name, of[meanings[name]]) for name, _ in made.form.options)
    kept = Interpretation(language, said)(made)
    return None if kept is None else kept.output


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("find other sub", "other\nother/x\nsub\nsub/inner.txt\n"),
        ("find sub ! -type d", "sub/inner.txt\n"),
        ("find sub other \\( -name x -o -name 'i*' \\) -type f", "sub/inner.txt\nother/x\n"),
        ("find sub -name x -o -not -type d -a -name '*'", "sub/inner.txt\n"),
        ("find sub/ -type f", "sub/inner.txt\n"),
        ("find other -path other -prune -o -print", ""),
        ("find a.txt -size 1", "a.txt\n"),
        ("find sub \\( -name x", None),
        ("find sub -name x \\)", None),
        ("find sub -type f other", None),
        ("find sub -o -name x", None),
        ("find link -type l", "link\n"),
    ],
)
def test_an_expression_binds_as_it_does_in_find(text: str, printed: str | None) -> None:
    assert run(WALK, text) == printed


def test_a_link_to_a_directory_is_listed_as_one_unless_details_are_asked_for() -> None:
    assert run(LISTING, "ls link run.sh sub") == "link\nrun.sh\n\nsub:\ninner.txt\n"
    assert run(LISTING, "ls -R sub other") == "other:\nx\n\nsub:\ninner.txt\n"


def test_dir_and_vdir_list_as_ls_does_that_is_told_more() -> None:
    columns, details = run(LISTING, "ls -C -b"), run(LISTING, "ls -l -b")
    assert columns
    assert details not in (None, columns)
    assert run(IN_COLUMNS, "dir") == columns
    assert run(IN_DETAIL, "vdir") == details
    assert run(IN_COLUMNS, "dir -l") == details
    assert run(IN_DETAIL, "vdir -C") == columns


def test_a_table_is_put_together_of_columns_that_were_seen() -> None:
    def df(columns: str) -> tuple[str, str]:
        return f"df --output={columns} /", real("df", f"--output={columns}", "/")

    shown = ("size", "source", "target,size", "size,target", "fstype,size", "source,size", "file")
    seen = [df(each) for each in shown]
    kept = [(text, taken(text), Kept(0, output, "[]")) for text, output in seen]
    tables = Tables(Seen(kept).matching)
    for columns in ("source,size,target", "target,source,size", "size,fstype", "file,size,source"):
        text, output = df(columns)
        table = tables.put_together(taken(text))
        assert table is not None, columns
        assert table.kept.output == output, columns
    for columns in ("source,avail", "size", "source,,size", "source,size="):
        assert tables.put_together(taken(f"df --output={columns} /")) is None
    assert tables.put_together(taken("df --output=source,size /tmp")) is None


def test_a_table_without_lines_gives_no_column() -> None:
    shown = {"target": "", "size,target": "", "source,target": " Size\n  1K\n", "fstype": "T\nx\n"}
    seen = [(f"df --output={columns} /", output) for columns, output in shown.items()]
    tables = Tables(Seen([(text, taken(text), Kept(0, out, "[]")) for text, out in seen]).matching)
    assert tables.put_together(taken("df --output=size,source /")) is None


def test_work_on_a_hostile_command_is_bounded() -> None:
    seen = [("ls", taken("ls"), Kept(0, "a.txt\nb.txt\nlink\nother\nrun.sh\nsub\n", "[]"))] * 3
    interpreter = Interpreter(Seen(seen).with_option, Seen(seen).matching)
    many = taken("ls " + "sub " * 3_000)
    with answering("ls"):
        found = interpreter.interpret(many)
    assert found is not None
