"""The reference of Python: docs/reference/python.md, and pages of packages made from docstrings.

`python scripts/site/api.py` prints docs/reference/python.md; `make docs` writes it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {
    path.name: path
    for home in sorted(ROOT.glob("packages/*/src"))
    for path in sorted(home.iterdir())
    if (path / "__init__.py").exists()
}
"""The directory of each distribution's package, by the package's name. The core is the first."""

PAGE = Path("reference", "python.md")

CORE = "shioenv"
PRIVATE = {"cli", "native"}
"""Packages without a page: other pages document the command line, and the programs are internal."""

_HEAD = """\
# Python

`import shioenv` loads no library: a name is imported when it is first asked for. The names of this
table are public, and so are the environments' ids ([environment](environment.md)). Everything else
may change between versions. `make docs` makes the table from docstrings.

| name | what it is | home |
|---|---|---|
"""
_ROW = re.compile(r"^\| `(?!__)(\w+)` \| (.*) \| `([\w.]+)` \|$", re.MULTILINE)


def names_page() -> str:
    """docs/reference/python.md: each public name, the first sentence about it, and its module."""
    import shioenv

    rows = []
    for name in shioenv.__all__:
        value = getattr(shioenv, name)
        if callable(value):  # not the version
            said = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
            first = re.split(r"(?<=\.) (?=[A-Z])", said)[0].replace("|", "\\|")
            rows.append(f"| `{name}` | {first} | `{value.__module__}` |\n")
    rows.append("| `__version__` | The version of the package, as a text. | `shioenv` |\n")
    return _HEAD + "".join(rows)


def packages() -> list[str]:
    """Pages of packages, sorted: the core's packages, then a page for each guest.

    Modules of the core that belong to no package share the page `modules`.
    """
    homes = {path.parent.name for path in SOURCES[CORE].glob("*/__init__.py")}
    return [*sorted(homes - PRIVATE), "modules", *sorted(SOURCES.keys() - {CORE})]


def modules(package: str) -> list[str]:
    """The public modules of a page, dotted and sorted."""
    home = SOURCES.get(package, SOURCES[CORE])
    if package in SOURCES:
        paths = [path for path in home.rglob("*.py") if _part(path, home) not in PRIVATE]
    elif package == "modules":
        paths = [path for path in home.glob("*.py") if not path.stem.startswith("__")]
    else:
        paths = [*(home / package).rglob("*.py")]
    found = {path.relative_to(home.parent).with_suffix("") for path in paths}
    dotted = {".".join(path.parts).removesuffix(".__init__") for path in found}
    return sorted(name for name in dotted if not re.search(r"\._|\.__main__$", name))


def _part(path: Path, home: Path) -> str:
    """Return the directory of a package that contains a module, or the module's own file."""
    return path.relative_to(home).parts[0]


def stage(out: Path) -> None:
    """Write the pages of packages, and link the staged table to them."""
    for package in packages():
        page = out / "reference" / "api" / f"{package}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("".join(_package_page(package)), encoding="utf-8")
    table = out / PAGE
    text = _ROW.sub(r"| [`\1`][\3.\1] | \2 | `\3` |", table.read_text(encoding="utf-8"))
    text += "\n## Packages\n\n| | |\n|---|---|\n"
    for package in packages():
        text += f"| [{package}](api/{package}.md) | {_about(package)} |\n"
    table.write_text(text, encoding="utf-8")


def _package_page(package: str) -> Iterator[str]:
    yield "---\nsearch:\n  exclude: true\n---\n\n"  # eleven of twelve entries would be internal
    yield f"# {package}\n\n"
    for module in modules(package):
        yield f"::: {module}\n\n"


def _about(package: str) -> str:
    if package == "modules":
        return "The core's other modules: errors, seeds, registration, version."
    home = SOURCES.get(package, SOURCES[CORE] / package)
    text = (home / "__init__.py").read_text(encoding="utf-8")
    return " ".join(text.split('"""')[1].partition("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    print(names_page(), end="")
