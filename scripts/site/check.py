"""The faults of a built site: broken links, and anything that a page would load from outside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "object": "data"}
"""Elements whose attribute a browser loads by itself; beside these `link`, by its `rel`."""

_LINKS_ONLY = {"canonical", "prev", "next", "alternate", "describedby"}
_SHOWN = {"only-light", "only-dark"}
"""Fragments that are no anchors: a style shows such a picture in one of the two schemes."""
_CSS_LOAD = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


class _Page(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given:
            held = set(given.get("rel", "").split()) <= _LINKS_ONLY
            (self.links if held else self.loads).append(given["href"])
        elif (name := LOADED.get(tag)) in given and name is not None:
            self.loads.append(given[name])


def faults(site: Path) -> list[str]:
    """Return a line for each fault of a directory of pages, sorted; empty for a sound site."""
    pages = {
        path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8"))
        for path in site.rglob("*.html")
    }
    found = {f"{name}: {fault}" for name in pages for fault in _faults_of(site, name, pages)}
    for path in site.rglob("*.css"):
        for address in _CSS_LOAD.findall(path.read_text(encoding="utf-8")):
            found.add(f"{path.relative_to(site)}: loads {address}")
    return sorted(found)


def _faults_of(site: Path, name: str, pages: dict[str, _Page]) -> Iterator[str]:
    page = pages[name]
    for load in page.loads:
        if urlsplit(load).netloc:
            yield f"loads {load}"
    for link in page.links + page.loads:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        inside = unquote(parts.path)
        if inside.startswith("/"):
            yield f"leads to {link}, which is from the root of a server"
            continue
        path = (site / name).parent / inside if inside else site / name
        if path.is_dir():
            path /= "index.html"
        if not path.is_file():
            yield f"leads to {link}, which is missing"
            continue
        target = pages.get(path.resolve().relative_to(site.resolve()).as_posix())
        place = unquote(parts.fragment)
        if target is not None and place and place not in target.ids | _SHOWN:
            yield f"leads to {link}, where nothing has that name"
