"""docs/errors.md explains every error, with code and exit status, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import shioenv.errors
from shioenv.errors import ShioenvError
from shioenv.grammar.notation import FaultKind

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
ROWS = re.findall(r"^\| (SHIO-\w+) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)


def error_classes() -> list[type[ShioenvError]]:
    found = vars(shioenv.errors).values()
    return [one for one in found if isinstance(one, type) and issubclass(one, ShioenvError)]


def test_every_error_class_has_its_row() -> None:
    documented = {code: [cell.strip() for cell in rest.split(" | ")] for code, rest in ROWS}
    for one in error_classes():
        assert one.code in documented, f"{one.__name__} ({one.code}) is not in docs/errors.md"
        cells = documented[one.code]
        assert cells[:2] == [f"`{one.__name__}`", str(one.exit_status)]
        assert all(cells[2:4]), f"{one.code} needs a cause and what to do"


def test_every_fault_of_grammar_files_has_its_row() -> None:
    codes = [code for code, _ in ROWS]
    assert [code for code in codes if code in {kind.value for kind in FaultKind}] == sorted(
        kind.value for kind in FaultKind
    )


def test_no_code_is_documented_that_does_not_exist_or_twice() -> None:
    known = {one.code for one in error_classes()} | {kind.value for kind in FaultKind}
    codes = [code for code, _ in ROWS]
    assert set(codes) <= known
    assert len(codes) == len(set(codes))


def test_no_two_errors_share_a_code() -> None:
    codes = [one.code for one in error_classes()]
    assert len(codes) == len(set(codes))


def test_every_error_ends_with_a_documented_exit_status() -> None:
    assert {one.exit_status for one in error_classes()} == {1, 2, 3}
