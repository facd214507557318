"""HTML pages: single files that include style and script and load nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from shioenv.errors import UsageError
from shioenv.text import count, fixed, share, visible
from shioenv_eval.report.chart_style import require_libraries

LIBRARIES = ("jinja2",)
"""The libraries for rendering pages, from the extra `report`."""

FILE = "report.html"
"""The default file name of a page."""


def page_file(directory: str | Path, file: str | Path | None, *drawing: str) -> Path:
    """Return the path of a page: `file`; None: `report.html` in `directory`.

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
