"""The core imports no guest, guests import its public modules, and imports point one way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.paths import ROOT
from support.sources import (
    FILES,
    PACKAGES,
    dependencies,
    module_name,
    package_of,
    text_of,
)
from support.sources import (
    TOGETHER as SOURCES,
)
from support.sources import parsed as parsed_text
from support.sources import walked as walked_text

LAYERS = {
    "shioenv": (
        "errors", "guests", "protocols", "registration", "seeding", "text", "endpoint",
        "native", "files", "domain", "bash", "system", "grammar", "synthesis", "sandbox",
        "behavior", "live", "irreducibility", "recording", "execution", "env", "dataset", "cli",
    ),
    "shioenv_model": (
        "bash", "composition", "memory", "rules", "sequence", "", "training", "predictors", "cli",
    ),
    "shioenv_eval": (
        "frozen", "grammars", "report", "", "adapting", "predictors", "conform", "cli",
    ),
    "shioenv_agents": ("preview", "tasks", "fronts", "mcp", "e2b", "cli"),
    "shioenv_serve": ("", "ssh", "cli"),
    "shioenv_backends": ("microvm", ""),
    "shioenv_paper": ("networks", "", "cli"),
}  # fmt: skip
"""The parts of each package, from the lowest. "" holds the modules beside them."""

TOGETHER = {
    "shioenv_eval": ("", "adapting", "predictors", "conform"),
}
"""Parts whose modules import each other, without a circle of modules."""

INTERFACES = ROOT / "docs" / "reference" / "interfaces.md"
DOORS = frozenset({"shioenv", "shioenv.__main__"})
"""Modules that may import from any layer."""

pytestmark = SOURCES


def parsed(path: Path) -> ast.Module:
    return parsed_text(text_of(path))


def walked(path: Path) -> tuple[ast.AST, ...]:
    return walked_text(text_of(path))


def nodes(path: Path) -> Iterator[ast.AST]:
    """Yield all nodes of a file, without imports for types alone."""
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
    """Every module of this project that a file imports anywhere, deferred imports included."""
    return tuple(_imported_modules(path, for_types))


def _imported_modules(path: Path, for_types: bool) -> Iterator[str]:
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
    package, *parts = module.split(".")
    if package not in PACKAGES or not parts:
        return False
    file = PACKAGES[package].joinpath(*parts)
    return file.is_dir() or file.with_suffix(".py").exists()


@cache
def imports() -> list[tuple[str, str]]:
    """Pairs of importer and imported, without the core's own entry modules."""
    return [
        (module_name(path), name)
        for path in FILES
        if module_name(path) not in DOORS
        for name in imported_modules(path)
    ]


def layer(module: str) -> str:
    """Return the part of its package that a module belongs to."""
    package, *parts = module.split(".")
    if not parts:
        return ""
    home = PACKAGES[package]
    alone = package != "shioenv" and not home.joinpath(parts[0]).is_dir()
    return "" if alone else parts[0]


def package(module: str) -> str:
    return module.split(".")[0]


def test_every_module_has_a_layer() -> None:
    found: dict[str, set[str]] = {name: set() for name in PACKAGES}
    for path in FILES:
        name = module_name(path)
        if name not in DOORS and "." in name:
            found[package(name)].add(layer(name))
    assert found == {name: set(layers) for name, layers in LAYERS.items()}


def test_a_package_imports_what_it_declares_alone() -> None:
    """So the core imports no guest."""
    for importer, imported in imports():
        one, other = package(importer), package(imported)
        assert one == other or other in dependencies(one), f"{importer} imports {imported}"


def test_a_guest_imports_public_modules_of_the_core_alone() -> None:
    """The page lists them, with the guarantees of each."""
    public = set(re.findall(r"^\| `([\w.]+)` \|", INTERFACES.read_text("utf-8"), re.MULTILINE))
    used = {
        imported
        for importer, imported in imports()
        if package(importer) != "shioenv" and package(imported) == "shioenv"
        if not PACKAGES["shioenv"].joinpath(*imported.split(".")[1:]).is_dir()
    }
    assert sorted(used - public) == [], "not public: docs/reference/interfaces.md"
    assert sorted(public - used - {module_name(path) for path in FILES}) == [], "no modules"


def test_imports_point_one_way() -> None:
    for importer, imported in imports():
        name = package(importer)
        if name != package(imported):
            continue
        one, other = layer(importer), layer(imported)
        together = TOGETHER.get(name, ())
        if one in together and other in together:
            continue
        order = LAYERS[name]
        assert order.index(other) <= order.index(one), f"{importer} imports {imported}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = {
        module_name(path): set(imported_modules(path, for_types=False)) - {module_name(path)}
        for path in FILES
    }
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def private_uses(path: Path) -> Iterator[str]:
    """Private names of other parts of this project that a file uses."""
    own = (package_of(path), layer(module_name(path)))
    modules: dict[str, str] = {}
    for node in walked(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if (package(name), layer(str(node.module))) == own:
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


def test_no_private_name_is_used_elsewhere() -> None:
    found = {str(path): list(private_uses(path)) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


def test_package_files_hold_a_docstring_only() -> None:
    for path in FILES:
        if path.name != "__init__.py" or module_name(path) in (
            "shioenv",
            "shioenv.native",
            "shioenv.env",
        ):
            continue  # they hold the public names, and the place of the compiled programs
        tree = parsed(path)
        assert ast.get_docstring(tree), path
        assert len(tree.body) == 1, path


HOMES = {
    "tomllib": ["shioenv.files"],
    "gymnasium": [
        "shioenv.registration",
        "shioenv.env",
        "shioenv_agents.tasks",
        "shioenv_agents.fronts",
    ],
    "typer": [f"{name}.cli" for name in PACKAGES],
    "rich": ["shioenv.cli", "shioenv_eval.cli"],
    "rapidfuzz": ["shioenv.behavior"],
    "ray": ["shioenv_backends."],
    "pyarrow": ["shioenv_eval.", "shioenv_paper."],
    "jinja2": ["shioenv_eval.report"],
    "altair": ["shioenv_eval.report", "shioenv_paper."],
    "scipy": ["shioenv_eval.report"],
    "vl_convert": ["shioenv_eval.report"],
    "pyseccomp": [],
    "bashkit": ["shioenv_eval.predictors"],
    "openai": ["shioenv.endpoint"],
    "sb3_contrib": ["shioenv_paper."],
    "stable_baselines3": ["shioenv_agents.fronts"],
    "torch": [
        "shioenv_agents.fronts",
        "shioenv_model.sequence",
        "shioenv_model.training",
        "shioenv_paper.networks",
    ],
    "transformers": ["shioenv_model.sequence", "shioenv_model.training"],
    "harbor": ["shioenv_agents.fronts"],
    "mcp": ["shioenv_agents.mcp"],
    "e2b": ["shioenv_agents.e2b"],
    "nemo_gym": ["shioenv_agents.fronts"],
    "openenv": ["shioenv_agents.fronts"],
    "inspect_ai": ["shioenv_agents.fronts"],
    "verifiers": ["shioenv_agents.fronts"],
}
"""The allowed importers of heavy libraries."""


@pytest.mark.parametrize("library", HOMES)
def test_heavy_libraries_are_imported_where_they_are_needed(library: str) -> None:
    for path in FILES:
        if library in libraries(path):
            name = module_name(path)
            assert f"{package(name)}.{layer(name)}" in HOMES[library], f"{path} imports {library}"


@cache
def libraries(path: Path) -> frozenset[str]:
    """Return a file's imports anywhere, by the first part of the name."""
    names = [node.module or "" for node in walked(path) if isinstance(node, ast.ImportFrom)]
    for node in walked(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return frozenset(name.split(".")[0] for name in names)


def test_which_sandbox_is_the_default_is_known_to_one_module() -> None:
    """Another one can replace it without a change to the code that runs inputs."""
    ours = "shioenv.sandbox.namespaces"
    for importer, imported in imports():
        if imported.startswith(ours) and not importer.startswith((ours, "shioenv_backends.")):
            assert importer == "shioenv.sandbox.backends", importer


def test_signatures_can_be_read() -> None:
    """Eight parameters at most outside the command line; constructors of environments fourteen."""
    for path in FILES:
        name = module_name(path)
        if layer(name) == "cli":
            continue
        for node in walked(path):
            if isinstance(node, ast.FunctionDef):
                given = node.args
                names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                env = name.startswith("shioenv.env.") and node.name == "__init__"
                count = len(names) - (names[:1] in (["self"], ["cls"]))
                assert count <= (14 if env else 8), f"{name}.{node.name} has {count} parameters"
