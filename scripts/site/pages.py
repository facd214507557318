"""The pages of the site: docs/ and the pages of the root, with links that hold among them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from results import MOST, arranged

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LIST = DOCS / "pages.md"
"""The page that lists all pages; the navigation follows its headings."""

LINK = re.compile(r'(?P<open>\]\(|\bsrc="|\bsrcset=")(?P<target>[^)"#\s]+)(?P<rest>[^)"\s]*)')
_ROW = re.compile(r"^\| \[(.+?)\]\(([^)#]+\.md)\) \| (.+) \|$")
_RULE = re.compile(r"^\|(:?-+:?\|)+$")
"""The line below a table's headings."""
_CODE = re.compile(r"`[^`]+`")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_DECLARED = re.compile(r"^<!-- docs-test: .*?-->\n", re.DOTALL | re.MULTILINE)
"""Declarations for `make docs-test`, which are not for readers."""

_PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(?P<dark>[^"]+)">\s*'
    r'<img (?P<about>[^>]*)src="(?P<light>[^"]+)">\s*</picture>'
)


@dataclass(frozen=True)
class Entry:
    """A page as docs/pages.md lists it: its file, title and one line about it."""

    path: Path
    title: str
    about: str


@dataclass(frozen=True)
class Section:
    """A heading of docs/pages.md with the pages below it."""

    title: str
    level: int
    entries: tuple[Entry, ...]


def sections() -> list[Section]:
    """The headings of docs/pages.md, in order, with the pages that the tables below them list."""
    found: list[tuple[str, int, list[Entry]]] = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"^(##+) (.*)$", line):
            found.append((heading[2], len(heading[1]), []))
        elif row := _ROW.match(line):
            path = (DOCS / row[2]).resolve()
            found[-1][2].append(Entry(path, row[1], row[3]))
    return [Section(title, level, tuple(entries)) for title, level, entries in found]


def placed(path: Path) -> Path:
    """Return the place of a file of the clone among the site's pages, relative to them.

    A file outside docs/ becomes a page in `project` if it is a page of the root, else a file in
    `files`.
    """
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    inside = path.relative_to(ROOT)
    if inside.suffix == ".md":
        return Path("project", f"{inside.stem.lower()}.md")
    return Path("files", inside)


def stage(out: Path) -> None:
    """Write all pages, and the files that these link to, into a directory.

    Errors: ValueError where a link leads to a directory, or out of the clone.
    """
    waiting = [*sorted(DOCS.rglob("*.md")), *(e.path for s in sections() for e in s.entries)]
    done = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        place = out / placed(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            waiting += [target for target in linked(path, text) if target.is_file()]
            waiting += [picture] if (picture := path.with_suffix(".png")).is_file() else []
            place.write_text(_as_site(path, text), encoding="utf-8")
        else:
            shutil.copyfile(path, place)


def linked(page: Path, text: str) -> Iterator[Path]:
    """Return the files of the clone that a page links to. Errors: ValueError, as `stage`."""
    for found in LINK.finditer(text):
        if (target := _target(page, found["target"])) is not None:
            yield target


def _target(page: Path, name: str) -> Path | None:
    """Return the target file of a link; None for an address, or for text that only resembles a
    link.
    """
    if "://" in name or not (target := (page.parent / name).resolve()).exists():
        return None
    if not target.is_relative_to(ROOT) or target.is_dir():
        raise ValueError(f"{page}: a link to {name}, which is no file of the clone")
    return target


def _as_site(page: Path, text: str) -> str:
    """Return a page with links of the site, and pictures that follow the site's switch."""
    here = placed(page).parent

    def moved(found: re.Match[str]) -> str:
        target = _target(page, found["target"])
        if target is None:
            return found[0]
        return found["open"] + os.path.relpath(placed(target), here) + found["rest"]

    if page.parent == DOCS / "experiments" or page == DOCS / "experiments.md":
        text = arranged(page, text)
    text = LINK.sub(moved, _DECLARED.sub("", text))
    text = _PICTURE.sub(
        lambda picture: (
            f'<p><img {picture["about"]}src="{picture["light"]}#only-light">'
            f'<img {picture["about"]}src="{picture["dark"]}#only-dark"></p>'
        ),
        text,
    )
    return _header(page, text) + "\n".join(_spaced(text.splitlines())) + "\n"


def _header(page: Path, text: str) -> str:
    """Return the header of a page; one with a wide table has no table of contents beside it."""
    widest = max(
        (line.count("|") - 1 for line in text.splitlines() if _RULE.match(line)), default=0
    )
    header = "hide:\n  - toc\n" if widest > MOST else ""
    header += "search:\n  exclude: true\n" if _is_unsearched(page) else ""
    return f"---\n{header}---\n\n" if header else ""


def _is_unsearched(page: Path) -> bool:
    """Whether no search should end at a page: it repeats others, lists them, or is for guests."""
    tables = page.parent == DOCS / "experiments" and page.with_suffix(".png").is_file()
    return tables or page in (LIST, DOCS / "reference/interfaces.md", ROOT / "README.md")


def _spaced(lines: list[str]) -> Iterator[str]:
    """Insert an empty line before each list: Python-Markdown parses no list without it."""
    fenced = listed = False
    before = ""
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        item = _ITEM.match(line) is not None
        if not fenced and item and before.strip() and not listed:
            yield ""
        listed = item or (listed and line.strip() != "" and not fenced)
        yield _CODE.sub(_unescaped, line) if line.startswith("|") and not fenced else line
        before = line


def _unescaped(code: re.Match[str]) -> str:
    """Return a piece of code in a table without the backslashes that GitHub needs before bars."""
    return code[0].replace("\\|", "|")
