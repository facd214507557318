"""The packages of this repository, and their modules."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from support.paths import ROOT

DISTRIBUTIONS: dict[str, Path] = {
    path.parent.name.replace("-", "_"): path.parent
    for path in sorted(ROOT.glob("packages/*/pyproject.toml"))
}
"""The directory of each distribution, by the name of the package that it installs."""

PACKAGES: dict[str, Path] = {name: home / "src" / name for name, home in DISTRIBUTIONS.items()}
"""The directory of each package, by its name."""

FILES: tuple[Path, ...] = tuple(
    file for package in PACKAGES.values() for file in sorted(package.rglob("*.py"))
)
"""Every module, as a file."""


@cache
def text_of(path: Path) -> str:
    """Return a file's text."""
    return path.read_text(encoding="utf-8")


@cache
def parsed(source: str) -> ast.Module:
    """Return a source's tree. The tests that read all sources share one process: `TOGETHER`."""
    return ast.parse(source)


@cache
def walked(source: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source's tree."""
    return tuple(ast.walk(parsed(source)))


@cache
def docstrings(source: str) -> tuple[tuple[str, int], ...]:
    """Return each docstring of a module, its classes, functions and attributes, with its margin."""
    return tuple(
        (node.value.value, node.col_offset)
        for node in walked(source)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


TOGETHER = pytest.mark.xdist_group("sources")
"""Marks tests that read all sources: one process parses them, once."""


@cache
def package_of(path: Path) -> str:
    """Return the name of the package that contains a module's file."""
    return next(name for name, home in PACKAGES.items() if path.is_relative_to(home))


@cache
def module_name(path: Path) -> str:
    """Return the dotted name of a module's file."""
    package = package_of(path)
    parts = [package, *path.relative_to(PACKAGES[package]).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative(path: Path) -> str:
    """Return a module's file with its package in front, as `shioenv/cli/main.py`."""
    package = package_of(path)
    return f"{package}/{path.relative_to(PACKAGES[package]).as_posix()}"


@cache
def dependencies(package: str) -> frozenset[str]:
    """Return this project's packages that a package declares, in its extras too, recursively.

    The core declares none: its extras only install guests.
    """
    if package == "shioenv":
        return frozenset()
    text = (DISTRIBUTIONS[package] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    declared = [*project["dependencies"]]
    for extra in project.get("optional-dependencies", {}).values():
        declared += extra
    names = {Requirement(one).name.replace("-", "_") for one in declared}
    ours = {name for name in names if name in PACKAGES and name != package}
    return frozenset(ours.union(*map(dependencies, ours)))
