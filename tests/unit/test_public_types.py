"""A type checker sees every public name with the exact type of its definition."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from mypy import api

import shioenv

ROOT = Path(__file__).parents[2]


def homes_for_type_checkers() -> dict[str, str]:
    """The module of each name that `shioenv/__init__.py` imports under TYPE_CHECKING."""
    tree = ast.parse((ROOT / "packages/shioenv/src/shioenv/__init__.py").read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        name.asname or name.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }


def test_type_checkers_find_each_name_where_it_is_loaded_from() -> None:
    assert homes_for_type_checkers() == shioenv._HOMES


def test_the_public_names_are_those_that_are_loaded_when_asked_for() -> None:
    assert sorted(shioenv.__all__) == sorted([*shioenv._HOMES, "__version__"])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return mypy's result for each public name, a line each, and for one that does not exist."""
    asking = tmp_path_factory.mktemp("types") / "asking.py"
    names = [*shioenv.__all__, "nonsense"]
    asking.write_text(
        "\n".join(["import shioenv", *(f"reveal_type(shioenv.{name})" for name in names)])
    )
    settings = ROOT / "pyproject.toml"
    said, failed, _ = api.run(
        ["--config-file", str(settings), "--follow-imports", "silent", str(asking)]
    )
    assert not failed
    return said


def test_no_public_name_is_any(told: str) -> None:
    revealed = dict(re.findall(r"asking\.py:(\d+): note: Revealed type is \"(.*)\"", told))
    types = {name: revealed[str(line)] for line, name in enumerate(shioenv.__all__, start=2)}
    assert [name for name, kind in types.items() if re.fullmatch("Any|.* -> Any", kind)] == []
    assert types["__version__"].endswith("str")


def test_a_name_that_is_none_is_an_error_to_a_type_checker(told: str) -> None:
    assert 'Module has no attribute "nonsense"' in told
