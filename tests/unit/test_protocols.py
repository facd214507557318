"""Kept executions and certificates contain numbers that identify the code that made them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from check_protocols import COVERED, NUMBERS, RECORD, code, current, digest, paths_of, stale


def test_no_covered_code_changed_without_its_number() -> None:
    known, now = json.loads(RECORD.read_text()), current()
    assert stale(known, now) == [], "raise the number in protocols.py"
    assert known == now, "run scripts/check_protocols.py --write"


def test_each_number_says_what_it_covers() -> None:
    assert set(NUMBERS) == set(COVERED)
    assert all(paths_of(name) for name in COVERED)


def test_what_turns_an_input_into_a_behavior_is_covered() -> None:
    """The covered code's imports from the core are covered, or are unrelated to a run."""
    paths = paths_of("EXECUTION")
    covered = {path.stem for path in paths if path.parent.name == "shioenv"}
    imported = {
        node.module.split(".")[1]
        for path in paths
        for file in path.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shioenv.")
        if node.module is not None
    }
    assert imported - covered <= {"errors", "files", "seeding", "text", "version"}


PYTHON = '''"""Text."""
import os


def one(x):
    """Text."""
    return f"{x} # no comment"  # a comment
'''
C = """#include <stdio.h>
/* text
 */
int one(void) { return f("// no comment", '"'); } // text
"""


@pytest.mark.parametrize(
    ("name", "content", "old", "new", "same"),
    [
        ("a.py", PYTHON, '"""Text."""', '"""Another\n    text."""', True),
        ("a.py", PYTHON, "a comment", "another", True),
        ("a.py", PYTHON, "import os\n\n", "from os import path\nimport sys\n", True),
        ("a.py", PYTHON, "no comment", "other", False),
        ("a.py", PYTHON, "return f", "return not f", False),
        ("a.c", C, "/* text", "/* other\nwords", True),
        ("a.c", C, "#include <stdio.h>\n", "", True),
        ("a.c", C, "no comment", "other", False),
        ("a.c", C, "return f", "return !f", False),
        ("a.txt", "one\n", "one", "two", False),
    ],
)
def test_what_counts_as_a_change_of_code(
    tmp_path: Path, name: str, content: str, old: str, new: str, same: bool
) -> None:
    assert old in content
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    (tmp_path / "before" / name).write_text(content)
    moved = tmp_path / "after" / f"moved{Path(name).suffix}"
    moved.write_text(content.replace(old, new))
    assert (code(tmp_path / "before" / name) == code(moved)) is same
    assert (digest([tmp_path / "before"]) == digest([tmp_path / "after"])) is same


def test_a_number_that_was_raised_is_not_stale() -> None:
    known = {"ONE": {"number": 1, "code": "a"}, "TWO": {"number": 1, "code": "b"}}
    now = {"ONE": {"number": 2, "code": "c"}, "TWO": {"number": 1, "code": "d"}}
    assert stale(known, now) == ["TWO"]
    assert stale({}, now) == []
