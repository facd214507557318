"""The reference of Python: docs/reference/python.md, and pages of packages made from docstrings.

`python scripts/site/api.py` prints docs/reference/python.md; `make docs` writes it.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

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

`import shioenv` loads no library: a name is imported when it is first asked for. The names on this
page are public, and so are the environments' ids ([environment](environment.md)). Everything else
may change between versions. `make docs` makes this page from docstrings.

| name | |
|---|---|
"""
_WIDTH = 88
"""Maximum length of a signature on one line."""


def names_page() -> str:
    """docs/reference/python.md: each public name with its signature and docstring."""
    import shioenv

    rows, parts = [], []
    for name in sorted(shioenv.__all__, key=str.lower):
        value = getattr(shioenv, name)
        if callable(value):  # not the version
            text = inspect.getdoc(value) or ""
            title = f"class {name}" if inspect.isclass(value) else f"{name}()"
            anchor = re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))
            first = re.split(r"(?<=\.)\s+(?=[A-Z])", text.partition("\n\n")[0])[0]
            rows.append(_row(f"[`{name}`](#{anchor})", first))
            parts += ["\n", *_section(title, f"shioenv.{name}", value)]
    rows.append("| `__version__` | The version of the package, as a text. |\n")
    return _HEAD + "".join(rows) + "".join(parts)


def _section(title: str, name: str, value: Any) -> Iterator[str]:
    yield f"## {title}\n\n"
    if not getattr(value, "_is_protocol", False):
        yield f"```text\n{_signature(name, value)}\n```\n\n"
    yield f"{inspect.getdoc(value)}\n"
    if not inspect.isclass(value):
        return
    about = _attributes(value)
    if about:
        yield "\n| attribute | type | |\n|---|---|---|\n"
        for attribute, (kind, text) in about.items():
            yield _row(f"`{attribute}`", kind and f"`{kind}`", text)
    for method, member in vars(value).items():
        bound = getattr(value, method)
        if not method.startswith("_") and callable(bound) and inspect.getdoc(bound):
            named = f"{value.__name__}.{method}"
            shown = _signature(named, bound, skip_self=inspect.isfunction(member))
            yield f"\n```text\n{shown}\n```\n\n{inspect.getdoc(bound)}\n"


def _row(*cells: str) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |\n"


def _signature(name: str, value: Any, *, skip_self: bool = False) -> str:
    """Format a call on one line, or with a line for each parameter."""
    signature = inspect.signature(value)
    listed = list(signature.parameters.values())[int(skip_self) :]
    texts, keywords = [], False
    for one in listed:
        if one.kind is one.KEYWORD_ONLY and not keywords:
            texts.append("*")
        keywords = keywords or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        texts.append(_parameter(one))
        if one.kind is one.POSITIONAL_ONLY and one is listed[-1]:
            texts.append("/")
    returned = signature.return_annotation
    ends = "" if inspect.isclass(value) or returned is signature.empty else f" -> {_type(returned)}"
    line = f"{name}({', '.join(texts)}){ends}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){ends}"


def _parameter(one: inspect.Parameter) -> str:
    stars = "**" if one.kind is one.VAR_KEYWORD else "*" * (one.kind is one.VAR_POSITIONAL)
    kind = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{kind}"
    default = repr(one.default)
    default = "..." if default.startswith("<") or " object at 0x" in default else default
    return f"{one.name}{kind} = {default}" if kind else f"{one.name}={default}"


def _type(annotation: Any) -> str:
    """Return the text of an annotation, without the texts of `Annotated`."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    tree = ast.parse(text, mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value).endswith("Annotated"):
        return ast.unparse(tree.slice.elts[0])  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _attributes(kind: type) -> dict[str, tuple[str, str]]:
    """Return the types and docstrings of a class's public attributes and properties."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    found: dict[str, tuple[str, str]] = {}
    assert isinstance(tree, ast.ClassDef)
    for node, after in pairwise([*tree.body, ast.Pass()]):
        if isinstance(node, ast.AnnAssign):
            said = _docstring(after) or _said(node.annotation)
            found[ast.unparse(node.target)] = (_type(ast.unparse(node.annotation)), said)
        elif isinstance(node, ast.FunctionDef) and any(
            ast.unparse(each) in ("property", "cached_property") for each in node.decorator_list
        ):
            kind_text = ast.unparse(node.returns) if node.returns else ""
            found[node.name] = (kind_text, ast.get_docstring(node) or "")
    return {name: about for name, about in found.items() if not name.startswith("_")}


def _docstring(node: ast.stmt) -> str:
    """Return the text of a statement that is a text alone, else ""."""
    value = node.value if isinstance(node, ast.Expr) else None
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _said(annotation: ast.expr) -> str:
    """Return the text of `Annotated[..., describe(TEXT)]`."""
    found = [
        each.args[0]
        for each in ast.walk(annotation)
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "describe"
    ]
    return str(ast.literal_eval(found[0])) if found else ""


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
    """Write the pages of packages, and list them on the page of public names."""
    for package in packages():
        page = out / "reference" / "api" / f"{package}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("".join(_package_page(package)), encoding="utf-8")
    page = out / PAGE
    text = page.read_text(encoding="utf-8")
    text += "\n## Packages\n\n| | |\n|---|---|\n"
    for package in packages():
        text += f"| [{package}](api/{package}.md) | {_about(package)} |\n"
    page.write_text(text, encoding="utf-8")


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
