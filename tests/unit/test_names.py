"""One word for one thing: the names of classes."""

from __future__ import annotations

import ast
from collections import defaultdict

from support.sources import FILES, TOGETHER, parsed, relative, text_of

pytestmark = TOGETHER
TWICE = {
    "ActionFault": "the codes of each environment's own faults, read as `info['error']`",
    "Environment": "of a shell that is composed; and Harbor's word for the place of a trial",
    "TaskEnvironment": "each framework's own word for what its front is",
}
"""Public names of classes in several modules, each with its reason."""


def test_a_class_name_stands_for_one_thing() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in parsed(text_of(path)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(relative(path))
    assert {name: homes for name, homes in modules.items() if len(homes) > 1}.keys() == TWICE.keys()
    assert len(TWICE) <= 8
