"""Names of files and functions say what they hold, and stand for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from support.sources import FILES, TOGETHER, package_of, parsed, relative, text_of, walked

pytestmark = TOGETHER
FILES_IN_SEVERAL = 24
"""Maximum number of file names that are in several packages."""
FUNCTIONS_IN_SEVERAL = 80
"""Maximum number of names of public functions that are in several modules."""
UNCLEAR = frozenset(
    {"asked", "asking", "cast", "door", "heard", "patience", "people", "seat", "seated", "stacked",
     "whereabouts"}
)  # fmt: skip
"""File names that say nothing to somebody who has never seen the module."""
UNCLEAR_CLASSES = frozenset({"Asked", "AskedShell", "Cast", "Door", "Patience", "Teller", "Told"})
"""Former names of classes of the core that did not describe their purpose."""


def modules() -> Iterator[Path]:
    return (path for path in FILES if not path.stem.startswith("__"))


def several(homes: dict[str, set[str]]) -> list[str]:
    return sorted(name for name, places in homes.items() if len(places) > 1)


def test_few_file_names_are_in_several_packages() -> None:
    homes: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        homes[path.stem].add(relative(path.parent))
    assert len(several(homes)) <= FILES_IN_SEVERAL, several(homes)


def test_few_function_names_are_in_several_modules() -> None:
    homes: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        for node in parsed(text_of(path)).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                homes[node.name].add(relative(path))
    assert len(several(homes)) <= FUNCTIONS_IN_SEVERAL, several(homes)


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [relative(path) for path in modules() if path.stem in UNCLEAR] == []


def test_no_class_of_the_core_has_an_unclear_name() -> None:
    names = {
        node.name
        for path in modules()
        if package_of(path) == "shioenv"
        for node in walked(text_of(path))
        if isinstance(node, ast.ClassDef)
    }
    assert names & UNCLEAR_CLASSES == set()
