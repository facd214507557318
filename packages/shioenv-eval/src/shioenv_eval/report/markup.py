"""The markup of reports: tables as Markdown or HTML, pages as single files of HTML."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self, TypeVar

from shioenv.errors import UsageError
from shioenv.text import count, fixed, share, visible
from shioenv_eval.report.chart_style import require_libraries

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by key; groups and their items keep the original order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headers, with a title and a note that explains how to read the rows."""

    title: str
    note: str
    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(
        cls, title: str, note: str, columns: Mapping[str, Callable[..., str]], items: Iterable[Any]
    ) -> Self:
        """Create a table with a row for each item; `columns` maps headers to cell functions."""
        rows = [tuple(cell_of(item) for cell_of in columns.values()) for item in items]
        return cls(title, note, tuple(columns), rows)

    @property
    def markdown(self) -> str:
        """The table as Markdown, below its title and note; numeric columns are right-aligned."""
        lines = [f"## {self.title}", "", self.note, ""]
        if self.rows:
            columns = zip(*self.rows, strict=True)
            rules = ("---:" if all(map(_is_number, column)) else "---" for column in columns)
            lines += [_row(self.headers), f"|{'|'.join(rules)}|", *map(_row, self.rows), ""]
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The table as HTML, with its title as caption, in a scrollable element.

        Every cell is escaped text.
        """
        title = escape(self.title)
        heads = "".join(f'<th scope="col">{escape(header)}</th>' for header in self.headers)
        rows = []
        for head, *cells in ([escape(visible(cell)) for cell in row] for row in self.rows):
            others = "".join(f"<td>{cell}</td>" for cell in cells)
            rows.append(f'<tr><th scope="row">{head}</th>{others}</tr>\n')
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">\n<table>\n'
            f"<caption>{title}</caption>\n<thead><tr>{heads}</tr></thead>\n"
            f"<tbody>\n{''.join(rows)}</tbody>\n</table>\n</div>\n"
        )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _is_number(cell: str) -> bool:
    return not cell or cell[0] in "-+0123456789"


LIBRARIES = ("jinja2",)
"""The libraries for rendering pages, from the extra `report`."""

FILE = "report.html"
"""The default file name of a page."""


def page_file(directory: str | Path, file: str | Path | None, *drawing: str) -> Path:
    """Return the path of a page: `file`, or if that is None, `report.html` in `directory`.

    `drawing` are libraries that the page needs in addition to `LIBRARIES`. Errors:
    MissingExtraError if one is not installed; UsageError if the path is a directory.
    """
    require_libraries("a report", "report", *sorted((*drawing, *LIBRARIES)))
    path = Path(directory) / FILE if file is None else Path(file)
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint=f"add a file name: {path / FILE}")
    return path


def rendered(package: str, *, style: str = "", **values: Any) -> str:
    """Render the page of a package: its `templates/page.html`, filled with `values`.

    The template extends the shared `base.html`. The page includes the shared style and script, the
    package's own `page.css` if it exists, `style`, and the package's own `page.js`. The script
    reads the value `data`. A content security policy admits only this style and this script.

    In addition to `values`, the template can use `markup`, `visible`, `fixed`, `count` and `share`.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shared = Path(__file__).parent / "templates"
    own = Path(str(resolve_name(package).__file__)).parent / "templates"
    sheets = [shared / "page.css"]
    if own != shared and (own / "page.css").exists():
        sheets.append(own / "page.css")
    style = "".join(sheet.read_text() for sheet in sheets) + style
    script = "".join(path.read_text() for path in (shared / "base.js", own / "page.js"))
    return environment.get_template("page.html").render(
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        markup=Markup,
        visible=visible,
        fixed=fixed,
        count=count,
        share=share,
        **values,
    )


def script_json(document: Any) -> str:
    """Return ASCII JSON without `<`, `>` and `&`, so that it cannot end a script or begin a tag."""
    text = json.dumps(document, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    """Return the hash of an inline script or style for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
