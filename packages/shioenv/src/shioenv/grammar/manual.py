"""Manual pages as text: enough of roff for usage lines and options, whatever made the page."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

LARGEST = 1 << 20
"""Bytes of a manual page that are read, at most, before and after it is unpacked (ours)."""

_TAG = re.compile(r"\.(?:TP|IP|It|HP)\b ?(.*)")
_HEADING = re.compile(r"\.S[hHsS] (.*)")
_MACRO = re.compile(r"\.(?:B|I|R|BI|BR|IB|IR|RB|RI|SM|SB|Nm|Ar|Fl|Op|Pa|Cm) (.*)")
_ESCAPE = re.compile(r"\\(?:f(?:\[[A-Z]*\]|\([A-Z]{2}|.)|s[+-]?\d|[&|^%/,:])")
_SPECIAL = {
    r"\-": "-", r"\(aq": "'", r"\(cq": "'", r"\(oq": "'", r"\(lq": '"', r"\(rq": '"',
    r"\(bu": "*", r"\e": "\\", r"\ ": " ", r"\~": " ", r"\(en": "-", r"\(em": "-",
}  # fmt: skip


def manual_text(page: bytes) -> str:
    """The text of a manual page in roff, plain or packed by gzip; "" for what cannot be unpacked.

    It is "" for a page in the macros of BSD (`.Dd`) as well.

    An option's tag has a line of its own, its description stands beneath and further in. The
    synopsis begins with the line `SYNOPSIS`. Of a page of more than `LARGEST` bytes the rest is
    left out.
    """
    if page.startswith(b"\x1f\x8b"):
        try:
            page = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(page[:LARGEST], LARGEST)
        except zlib.error:
            return ""
    text = page[:LARGEST].decode("utf-8", "replace")
    return "" if re.search(r"^\.Dd ", text, re.MULTILINE) else "\n".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    tagged = False  # whether the next text is an option's tag
    indent = ""
    synopsis: list[str] | None = None  # the words of one usage line, while they last
    for line in text.splitlines():
        if line.startswith(('.\\"', "'\\\"")) or line.strip() == ".":
            continue
        ends = line.startswith((".br", ".PP", ".P", ".LP", ".sp", ".SH", ".Sh", ".SS", ".TP"))
        if synopsis and ends:
            yield "  " + " ".join(synopsis)
            synopsis = []
        if heading := _HEADING.match(line):
            indent = ""
            title = _plain(heading[1]).strip('"').upper()
            synopsis = [] if title.startswith("SYNOPSIS") else None
            yield title
            continue
        if tag := _TAG.match(line):
            words = _plain(tag[1]).strip('" ')
            tagged = line.startswith(".TP") or not words
            indent = " " * 8
            if not tagged:
                yield "  " + words.partition('"')[0]
            continue
        if macro := _MACRO.match(line):
            joins = re.match(r"\.[BIR]{2} ", line) is not None
            line = _joined(macro[1]) if joins else _plain(macro[1]).strip('"')
            line = line.replace('" "', " ")
        elif line.startswith((".", "'")):
            if re.match(r"\.(?:PP|P|LP|Pp|sp|br|RE)\b", line):
                indent = "" if not line.startswith((".sp", ".br")) else indent
            continue
        plain = _plain(line)
        if synopsis is not None:
            synopsis.append(plain.strip())
            continue
        yield f"  {plain.strip()}" if tagged else f"{indent}{plain}"
        tagged = False


def _joined(arguments: str) -> str:
    """The arguments of a macro of two fonts, which prints them without blanks between them."""
    words = re.findall(r'"((?:[^"]|"")*)"|((?:\\.|\S)+)', arguments)
    return "".join(_plain(quoted or bare) for quoted, bare in words)


def _plain(text: str) -> str:
    for written, shown in _SPECIAL.items():
        text = text.replace(written, shown)
    return _ESCAPE.sub("", text)
