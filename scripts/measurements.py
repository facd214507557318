"""Write the section on how figures were made of each page that has measured figures.

    python scripts/measurements.py [DOCS]

The facts come from `measurements.toml`. Pages are changed in place; a page without the section gets
one at its end.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SECTION: Final = re.compile(
    r"\n*<!-- measurements -->\n.*?<!-- end of measurements -->\n", re.DOTALL
)


def section(page: str, measured: Mapping[str, Any]) -> str:
    """Return the section of a page, given by its path below `docs`, as Markdown."""
    up = "../" * page.count("/")
    rows = []
    for each in measured["measured"]:
        if each["page"] == page:
            kept = re.sub(r"\]\((?!http)", f"]({up}", each.get("kept", ""))
            build = f"`{each['build']}`" + (f": {kept}" if kept else "")
            load = str(each.get("load", ""))
            rows.append(
                f"| {each['figures']} | `{each['command']}` | {build} | {each['date']} | {load} |"
            )
    return "\n".join(
        [
            "\n\n<!-- measurements -->",
            "## How these figures were made",
            "",
            f"On {measured['machine']}. The column *build of `debian-12`* gives the reason "
            "for an older build.",
            "",
            "| figures | command | build of `debian-12` | date | load |",
            "|---|---|---|---|---:|",
            *rows,
            "<!-- end of measurements -->\n",
        ]
    )


def with_section(text: str, page: str, measured: Mapping[str, Any]) -> str:
    """Return a page's text with its present section."""
    new = section(page, measured)
    if SECTION.search(text):
        return SECTION.sub(lambda _: new, text, count=1)
    return text.rstrip("\n") + new


def main() -> None:
    """Write the sections below the given directory, or `docs`."""
    docs = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    measured = tomllib.loads((docs / "measurements.toml").read_text())
    for page in sorted({each["page"] for each in measured["measured"]}):
        file = docs / page
        file.write_text(with_section(file.read_text(), page, measured))


if __name__ == "__main__":
    main()
