"""Traits of commands inside inputs come from the headers of their grammars, not from lists of names
in modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from shioenv.bash.builtins import BUILTINS
from shioenv.grammar.library import shipped_headers
from support.sources import FILES, TOGETHER, relative, text_of, walked

pytestmark = TOGETHER
ALLOWED = (
    "shioenv/grammar/",
    "shioenv/bash/builtins.py",
    "shioenv_eval/grammars/help.py",
    "shioenv_model/composition/callers.py",
    "shioenv_model/memory/functions/",
    "shioenv_model/rules/",
)
"""Grammars are called by their names. The others are Bash's builtins, the parsers of help texts
with a special style, the commands that run others, the families of functions, and the rules of
single commands."""


@cache
def names() -> frozenset[str]:
    """All commands with a grammar, without the builtins, which are part of Bash's language."""
    return frozenset(name for name, header in shipped_headers().items() if header.package != "bash")


def lists(source: str) -> Iterator[tuple[int, list[str]]]:
    """Return the lines of a module that list several commands, with the commands. A list is a set,
    list, tuple, or the keys of a dictionary, mostly of commands' names, or one text of such names.
    """
    for node in walked(source):
        if not isinstance(node, ast.expr):
            continue
        texts: list[str] = []
        if isinstance(node, ast.Set | ast.List | ast.Tuple | ast.Dict):
            parts = node.keys if isinstance(node, ast.Dict) else node.elts
            texts = [
                part.value
                for part in parts
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts = node.value.split()
        found = [text for text in texts if text in names()]
        if len(found) > 1 and len(found) > len(texts) / 2:
            yield node.lineno, found


def test_no_module_lists_commands() -> None:
    found = {
        relative(path): listed
        for path in FILES
        if not relative(path).startswith(ALLOWED) and (listed := [*lists(text_of(path))])
    }
    assert not found


def test_all_commands_are_known() -> None:
    """Each is a program, which no other module may list, or a word of Bash's language."""
    builtins = {name for name, each in shipped_headers().items() if each.package == "bash"}
    assert len(shipped_headers()) == 192
    assert builtins <= BUILTINS
    assert names() | builtins == shipped_headers().keys()


@pytest.mark.parametrize(
    "source",
    [
        '_READING = frozenset({"cat", "head", "tail"})',
        'if name in ("chmod", "chown"): pass',
        'EDITS = ("perl", "sed")',
        'OPENS = [*BEFORE, "cut", "sort"]',
        'WEIGHTS = {"find": 3.0, "ls": 2.0, "sed": 1.0}',
        'MANY = frozenset("cp mv ln".split())',
        'SAID = {"rm rmdir unlink": "Something has to go."}',
        'if command == "x" and words[0] in {"find", "ls"}: pass',
    ],
)
def test_a_list_put_back_is_found(source: str) -> None:
    assert [*lists(source)]


@pytest.mark.parametrize(
    "source",
    [
        'if name == "find": pass',
        '"""Commands as `cat file` and the like."""',
        'KEYS = ("users", "groups", "name", "home")',
        'BUILTINS = frozenset({"cd", "export", "ulimit", "pwd"})',
        'run(["xargs", "-0", "touch", "--", "x"])',
    ],
)
def test_what_lists_no_commands_is_left_alone(source: str) -> None:
    assert [*lists(source)] == []
