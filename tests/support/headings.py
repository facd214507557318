"""The anchors of a page's headings."""

from __future__ import annotations

import re


def headings(page: str) -> set[str]:
    """Return the anchors of a page's headings, as the site makes them; of equal ones the first."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    titles = re.findall(r"^#+ +(.*?)(?: +\{[^}]*\})?$", text, re.MULTILINE)
    named = re.findall(r"(?:\{#|id=\")([\w-]+)", page)
    plain = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {*named, *(re.sub(r"[-\s]+", "-", title) for title in plain)}
