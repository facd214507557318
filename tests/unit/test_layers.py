"""Imports point one way: a package imports its own modules and those of packages above it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import shioenv

LAYERS = (
    "errors", "guests", "protocols", "registration", "seeding", "version", "text", "endpoint",
    "native", "files", "domain", "bash", "system", "grammar", "synthesis", "sandbox", "behavior",
    "live", "preview", "irreducibility", "recording", "composition", "model", "execution", "env",
    "dataset", "training", "report", "evaluation", "tasks", "fronts", "experiments", "cli",
)  # fmt: skip
SOURCE = Path(shioenv.__file__).parent
DOORS = frozenset({"__init__", "__main__"})
"""Of the package itself: they lead into any layer."""
FILES = tuple(sorted(SOURCE.rglob("*.py")))

pytestmark = pytest.mark.xdist_group("layers")
"""One process reads all files, once."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


def module_name(path: Path) -> str:
    parts = ["shioenv", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def nodes(path: Path) -> Iterator[ast.AST]:
    """All of a file, but for what is imported for types alone."""
    waiting: list[ast.AST] = [parsed(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        yield node
        waiting += ast.iter_child_nodes(node)


@cache
def imported_modules(path: Path, for_types: bool = True) -> tuple[str, ...]:
    return tuple(_imported_modules(path, for_types))


def _imported_modules(path: Path, for_types: bool) -> Iterator[str]:
    """Every module of ours that a file imports anywhere, deferred imports included."""
    for node in walked(path) if for_types else nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative imports are not used"
            names = [node.module]
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from filter(is_ours, names)


@cache
def is_ours(module: str) -> bool:
    file = SOURCE.joinpath(*module.split(".")[1:])
    return module.startswith("shioenv.") and (file.is_dir() or file.with_suffix(".py").exists())


@cache
def package_imports() -> list[tuple[str, str]]:
    """Pairs of importer and imported, the package's own doors left out."""
    return [
        (module_name(path), name)
        for path in FILES
        if path.parent != SOURCE or path.stem not in DOORS
        for name in imported_modules(path)
    ]


def layer(module: str) -> str:
    return module.split(".")[1]


def test_every_package_has_a_layer() -> None:
    found = {
        path.stem if path.is_file() else path.name
        for path in SOURCE.iterdir()
        if (path.suffix == ".py" and path.stem not in DOORS) or (path / "__init__.py").exists()
    }
    assert found == set(LAYERS)


def test_imports_point_one_way() -> None:
    for importer, imported in package_imports():
        assert LAYERS.index(layer(imported)) <= LAYERS.index(layer(importer)), (
            f"{importer} imports {imported}"
        )


def test_no_module_imports_itself_by_way_of_others() -> None:
    imports = {
        module_name(path): set(imported_modules(path, for_types=False)) - {module_name(path)}
        for path in FILES
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def private_uses(path: Path) -> Iterator[str]:
    """Names of other packages of ours that are theirs alone and that a file uses all the same."""
    own = module_name(path).split(".")[:2]
    modules: dict[str, str] = {}
    for node in walked(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shioenv"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name.split(".")[:2] == own:
                    continue
                modules[alias.asname or alias.name] = name
                if is_private(alias.name):
                    yield name
    for node in walked(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module and is_private(node.attr):
                yield f"{module}.{node.attr}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_private_name_is_used_in_another_package() -> None:
    found = {str(path): list(private_uses(path)) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


def test_inside_a_package_submodules_are_imported_never_the_package() -> None:
    for path in FILES:
        for name in imported_modules(path):
            package = SOURCE.joinpath(*name.split(".")[1:])
            own = module_name(path).split(".")[:2] == name.split(".")[:2]
            if own and package.is_dir() and len(name.split(".")) == 2:
                modules = {n for n in imported_modules(path) if n.startswith(f"{name}.")}
                assert modules, f"{module_name(path)} imports the package {name}"


def test_package_files_hold_a_docstring_only() -> None:
    for path in SOURCE.rglob("*/__init__.py"):
        if path.parent.name in ("native", "env"):
            continue  # they say where the compiled programs are, and register the environments
        tree = parsed(path)
        assert ast.get_docstring(tree), path
        assert len(tree.body) == 1, path


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("tomllib", ["files"]),
        ("gymnasium", ["registration", "env", "tasks"]),
        ("typer", ["cli"]),
        ("rich", ["cli"]),
        ("rapidfuzz", ["behavior"]),
        ("ray", ["execution"]),
        ("pyarrow", ["dataset", "experiments"]),
        ("jinja2", ["report"]),
        ("altair", ["report", "experiments"]),
        ("scipy", ["report"]),
        ("vl_convert", ["report"]),
        ("pyseccomp", []),
        ("bashkit", ["evaluation"]),
        ("openai", ["endpoint"]),
        ("sb3_contrib", ["experiments"]),
        ("stable_baselines3", ["env"]),
        ("torch", ["env", "model", "training"]),
        ("transformers", ["model", "training"]),
        ("harbor", ["fronts"]),
        ("openenv", ["fronts"]),
        ("inspect_ai", ["fronts"]),
        ("verifiers", ["fronts"]),
    ],
)
def test_heavy_libraries_live_where_they_are_needed(library: str, homes: list[str]) -> None:
    for path in FILES:
        if library in libraries(path):
            assert layer(module_name(path)) in homes, f"{path} imports {library}"


@cache
def libraries(path: Path) -> frozenset[str]:
    """What a file imports anywhere, by the first part of the name."""
    names = [node.module or "" for node in walked(path) if isinstance(node, ast.ImportFrom)]
    for node in walked(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return frozenset(name.split(".")[0] for name in names)


def test_which_backend_is_the_default_is_known_to_the_sandbox_alone() -> None:
    """Another one can take its place without a change to what runs inputs."""
    backends = ("shioenv.sandbox.namespaces", "shioenv.sandbox.microvm")
    for importer, imported in package_imports():
        if imported.startswith(backends) and not importer.startswith(backends):
            assert importer in ("shioenv.sandbox.default", "shioenv.sandbox.host"), importer


def test_signatures_can_be_read() -> None:
    """Eight parameters at most outside the command line; constructors of environments fourteen."""
    for path in sorted(SOURCE.rglob("*/*.py")):
        for node in walked(path):
            if isinstance(node, ast.FunctionDef) and layer(module_name(path)) != "cli":
                given = node.args
                names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                most = 14 if layer(module_name(path)) == "env" and node.name == "__init__" else 8
                count = len(names) - (names[:1] in (["self"], ["cls"]))
                assert count <= most, f"{module_name(path)}.{node.name} has {count} parameters"
