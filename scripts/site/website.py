"""Build the documentation site: `python scripts/site/website.py DIRECTORY`, by Zensical.

DIRECTORY/html is the site. It needs no server and no network. The exit status is 1 where a link or
an anchor is broken, where a page would load something from outside, or where a page of docs/ is not
in docs/pages.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import api
from check import faults
from pages import DOCS, LIST, ROOT, Section, placed, sections, stage

HERE = Path(__file__).parent
ASSETS = ("iframe-worker.js", "site.css", "wide.js")
COMMANDS = sorted((DOCS / "reference" / "cli").glob("*.md"))
"""Generated pages of subcommands. docs/reference/cli.md lists them."""


def unlisted() -> list[str]:
    """Return the pages of docs/ that docs/pages.md does not list, or lists twice."""
    listed = [entry.path for section in sections() for entry in section.entries]
    return [
        str(page.relative_to(ROOT))
        for page in sorted(DOCS.rglob("*.md"))
        if page not in (DOCS / "index.md", LIST, *COMMANDS) and listed.count(page) != 1
    ]


def navigation(listed: list[Section]) -> list[dict[str, Any]]:
    """Zensical's `nav`: headings of the second level hold pages, and headings of the third."""
    top: list[dict[str, Any]] = [{"Home": "index.md"}]
    for section in listed:
        inside: list[dict[str, Any]] = [
            {entry.title: str(placed(entry.path))} for entry in section.entries
        ]
        if section.level == 2:
            top.append({section.title: inside})
        else:
            (holder,) = top[-1].values()
            holder.append({section.title: inside})
        if any(entry.path == DOCS / api.PAGE for entry in section.entries):
            inside.append({"Commands": [str(placed(page)) for page in COMMANDS]})
            inside.append({"Packages": [f"reference/api/{name}.md" for name in api.packages()]})
    return [*top, {"All pages": str(placed(LIST))}]


def llms(listed: list[Section]) -> str:
    """llms.txt (https://llmstxt.org): the headings, and a line for each page."""
    lines = ["# ShIOEnv", ""]
    for section in listed:
        lines += [f"{'#' * section.level} {section.title}", ""] if section.entries else []
        for entry in section.entries:
            place = placed(entry.path).with_suffix(".html")
            lines.append(f"- [{entry.title}]({place}): {entry.about}")
        lines += [""] if section.entries else []
    lines += ["## Subcommands", ""]
    lines += [f"- [shioenv {page.stem}]({placed(page).with_suffix('.html')})" for page in COMMANDS]
    return "\n".join(lines) + "\n"


def build(out: Path) -> list[str]:
    """Build into a directory, and return the faults, a line each.

    Errors: subprocess.CalledProcessError where Zensical fails; Zensical prints the reason.
    """
    if missing := unlisted():
        return [f"{name}: docs/pages.md has to list it once" for name in missing]
    shutil.rmtree(out, ignore_errors=True)
    pages = out / "pages"
    stage(pages)
    api.stage(pages)
    (pages / "assets").mkdir()
    for name in ASSETS:
        shutil.copyfile(HERE / name, pages / "assets" / name)
    listed = sections()
    (pages / "llms.txt").write_text(llms(listed), encoding="utf-8")
    (out / "zensical.toml").write_text(_configuration(listed), encoding="utf-8")
    program = [sys.executable, "-m", "zensical", "build", "--strict"]
    subprocess.run(program, cwd=out, check=True, stdout=subprocess.DEVNULL)
    (out / "html" / "404.html").unlink()  # its links are of a site at the root of a server
    return faults(out / "html")


def _configuration(listed: list[Section]) -> str:
    """Return zensical.toml with the navigation and the path of the package's source."""
    nav = "nav = " + _toml(navigation(listed)) + "\n"
    text = (HERE / "zensical.toml").read_text(encoding="utf-8")
    text = text.replace("[project]\n", "[project]\n" + nav, 1)
    source = json.dumps([str(home.parent) for home in api.SOURCES.values()])
    return f"{text}\n[project.plugins.mkdocstrings.handlers.python]\npaths = {source}\n"


def _toml(value: Any) -> str:
    """Format lists, tables and texts as one line of TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


if __name__ == "__main__":
    try:
        found = build(Path(sys.argv[1]))
    except subprocess.CalledProcessError:
        sys.exit(1)
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    sys.exit(1 if found else 0)
