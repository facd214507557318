"""C files have an order: none uses a file that uses it, by a function or by a header."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDERED = tuple(f"packages/shioenv/src/shioenv/native/{name}" for name in ("around", "library"))

_NO_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_INCLUDED = re.compile(r'^#include "([\w/]+)\.h"', re.MULTILINE)
_DEFINED = re.compile(r"^(\w[\w *]*?)\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
_CALLED = re.compile(r"\b(\w+)\(")


def functions(code: str, *, static: bool) -> set[str]:
    """The functions that a file defines: for itself, or for others."""
    return {name for kind, name in _DEFINED.findall(code) if ("static" in kind.split()) is static}


def uses(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Return by the name of a file, `x` for `x.c` and `x.h`, the others that it uses."""
    code = {name: _NO_CODE.sub(" ", text) for name, text in files.items()}
    owner = {
        function: name.partition(".")[0]
        for name, text in code.items()
        for function in functions(text, static=False)
    }
    used: dict[str, set[str]] = {}
    for name, text in files.items():
        own = name.partition(".")[0]
        called = {*_CALLED.findall(code[name])} - functions(code[name], static=True)
        found = {owner[function] for function in called & owner.keys()}
        found |= {other for other in _INCLUDED.findall(text) if f"{other}.h" in files}
        used.setdefault(own, set()).update(found - {own})
    return used


def order(files: Mapping[str, str]) -> list[str]:
    """Sort the names so that each comes after those that it uses. Errors: CycleError."""
    return list(TopologicalSorter(uses(files)).static_order())


@pytest.mark.parametrize("directory", ORDERED)
def test_no_file_uses_one_that_uses_it(directory: str) -> None:
    files = {path.name: path.read_text("utf-8") for path in (ROOT / directory).glob("*.[ch]")}
    order(files)


LOW = {"low.h": "int low(int given);\n", "low.c": '#include "low.h"\nint low(int given)\n{\n}\n'}
HIGH = {"high.h": "enum { HIGH };\n", "high.c": '#include "low.h"\nint high(void) { low(1); }\n'}


def test_what_is_used_comes_first() -> None:
    assert order(LOW | HIGH) == ["low", "high"]


@pytest.mark.parametrize(
    "added",
    [
        "extern int high(void);\nint more(void) { return high(); }\n",
        '#include "high.h"\n',
    ],
)
def test_a_circle_is_found(added: str) -> None:
    with pytest.raises(CycleError):
        order(LOW | HIGH | {"low.c": LOW["low.c"] + added})


def test_names_in_comments_and_strings_are_no_use() -> None:
    told = '/* high(): "high" */ // high\nconst char *text = "high()";\n'
    assert order(LOW | HIGH | {"low.c": LOW["low.c"] + told}) == ["low", "high"]
