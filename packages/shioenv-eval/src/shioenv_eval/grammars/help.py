"""Parsing of options from a program's help text or manual page, in several styles.

Most programs list options one per line, like GNU and util-linux. A few commands have a special
style, with a parser chosen by the command's name. These styles are `find`'s menus, `ps`'s letters
without a dash, `dd`'s operands and `ip`'s grammar. Others are the usage lines of `ethtool` and
`netstat`. For manual pages, only the roff needed for usage lines and options is supported.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

MAX_INDENT = 10
"""Maximum indentation of an option; text further to the right is a description."""

_NAME = re.compile(r"--?(?=[^\s-])(?:<[a-z]+>|[^\s,=\[\]<>(){}|'\"`]+)")
_ATTACHED = re.compile(r"(\[=?)?=?(?:<[^>]*>|\{[^}]*\}|[^\s,\[\]{}]|\[[^\]]*\])+\]?")
_METAVAR = re.compile(
    r" (?:<[^>]*>"  # <size>, <list of ciphers>
    r"|\[\[?[A-Z][^\s]*"  # [[USER@]HOST:]FILE-NAME
    r"|[A-Z][A-Z0-9_./:-]*(?=[\s,]|$)(?!\s-\w)"  # FILE, N
    r"|[a-z]+(?=  |\t|$))"  # name before a wide gap
)
_GAP = re.compile(r",\s*(?=-)|\|(?=-)| {2}(?=--\w)")


@dataclass(frozen=True, slots=True)
class HelpOption:
    """One option of a help text: its spellings, and how it takes a value.

    `value` is "none", "required" or "optional". `metavar` is the help's name for the value, or "".
    If `any_of` is set, the names are abbreviations of one name (`-s[tatistics]`).
    """

    names: tuple[str, ...]
    value: str = "none"
    metavar: str = ""
    any_of: bool = False


@dataclass(frozen=True, slots=True)
class Help:
    """The options of a help text; a grammar is allowed to lack the names in `accepted`."""

    options: tuple[HelpOption, ...]
    accepted: frozenset[str] = field(default_factory=frozenset)

    @property
    def names(self) -> frozenset[str]:
        """All names that the help text documents."""
        return frozenset(name for option in self.options for name in option.names)


def read_help(command: str, text: str) -> Help:
    """Return the options in the help text of `command`, each once, in order."""
    accepted: frozenset[str] = frozenset()
    if command == "netstat":
        accepted = frozenset(f"--{name}" for name in re.findall(r"\b([a-z]+\d*) \(", text))
    return Help(_merged(_READERS.get(command, _listed)(text)), accepted)


def _merged(options: Iterator[HelpOption]) -> tuple[HelpOption, ...]:
    """Merge options so that each name occurs once. An option without new names is omitted."""
    seen: set[str] = set()
    kept = []
    for option in options:
        new = tuple(name for name in option.names if name not in seen)
        if new:
            kept.append(replace(option, names=new))
            seen.update(new)
    return tuple(kept)


def _listed(text: str) -> Iterator[HelpOption]:
    """Yield options listed one per line: `  -B, --block-size=SIZE  scale sizes`.

    The range `-M` is not an option if the range `N-M` is listed too.
    """
    ranges = set(re.findall(rf"^ {{1,{MAX_INDENT}}}[A-Z](-[A-Z]) ", text, re.MULTILINE))
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        first, _, _ = line.strip().partition(" ")
        if 1 <= indent <= MAX_INDENT and first.startswith("-") and first not in ranges:
            option = read_option(line.strip())
            if option is not None:
                yield option


def read_option(text: str) -> HelpOption | None:
    """Parse the option at the start of a line of help; None if there is none."""
    names: list[str] = []
    value, metavar = "none", ""
    position = 0
    while match := _NAME.match(text, position):
        name = "-NUM" if match[0] in {"-NUM", "-<number>", "-<n>"} else match[0]
        names.append(name)
        position = match.end()
        following = text[position : position + 1]
        if following and following in "=[" and (shown := _ATTACHED.match(text, position)):
            value = "optional" if following == "[" else "required"
            metavar = re.sub(r"^\[[+-]\]", "", shown[0].lstrip("=")).strip("[]=<>{}")
            position = shown.end()
        elif spaced := _METAVAR.match(text, position):
            value, metavar = "required", spaced[0].strip(" <>")
            position = spaced.end()
        gap = _GAP.match(text, position)
        if gap is None or (gap[0] == "  " and len(name) > 2):  # a wide gap starts the description
            break
        position = gap.end()
    if not names:
        return None
    return HelpOption(tuple(dict.fromkeys(names)), value, metavar)


def _find(text: str) -> Iterator[HelpOption]:
    """Parse menus of words after one dash, several per line, with their values in capitals."""
    yield from (HelpOption((name,)) for name in ("-H", "-L", "-P"))
    yield HelpOption(("-O",), "required", "level")
    yield HelpOption(("-D",), "required", "debugopts")
    menus = text.partition("Valid arguments")[0].partition("Operators")[2]
    shape = r"(?<=\s)(--?[a-z][\w-]*)(?: (?:\[-/\])?((?:[A-Z]|\[[bcdpflsD]+\])[^\s;]*))?"
    for match in re.finditer(shape, menus):
        metavar = (match[2] or "").partition("[")[0] or ("TYPE" if match[2] else "")
        yield HelpOption((match[1],), "required" if match[2] else "none", metavar)


def _ps(text: str) -> Iterator[HelpOption]:
    """Parse lines such as `-p, p, --pid <PID>`, in which letters without a dash are names too."""
    name = r"(?:--[A-Za-z][a-z-]*|-?\w)"
    line_shape = re.compile(rf"\s{{1,8}}({name}(?:,\s*{name})*)(\s<[^>]*>)?(?=\s{{2,}}|\s*$)")
    for line in text.splitlines():
        if match := line_shape.match(line):
            names = tuple(re.split(r",\s*", match[1]))
            value = "required" if match[2] else "none"
            yield HelpOption(names, value, (match[2] or "").strip(" <>"))


def _dd(text: str) -> Iterator[HelpOption]:
    """Parse operands `bs=BYTES`, then the usual two options."""
    for match in re.finditer(r"^ {2}([a-z]+)=([A-Z]+)\s+(?:\(or ([a-z]+)=)?", text, re.MULTILINE):
        for name in filter(None, (match[1], match[3])):
            yield HelpOption((f"{name}=",), "required", match[2])
    yield from _listed(text)


def _ethtool(text: str) -> Iterator[HelpOption]:
    """Parse usage lines `ethtool [ FLAGS ] -s|--change DEVNAME`, then flags one per line."""
    for line in text.splitlines():
        match = re.match(r"\s*ethtool (?:\[ FLAGS \]\s*)?(-.*)", line)
        shown = match[1] if match else line.strip()
        if match or (line.startswith("\t-") and not line.startswith("\t\t")):
            option = read_option(re.sub(r" (?:DEVNAME|MASK\b).*", "", shown))
            if option is not None:
                value = "required" if "MASK" in shown else "none"
                yield HelpOption(option.names, value)


def _netstat(text: str) -> Iterator[HelpOption]:
    """Parse lines of options, and `{-t|--tcp}` in the definition of socket types."""
    yield from _listed(text)
    for match in re.finditer(r"\{(-\w)\|(--\w+)\}|(?<=\s)(--\w+)(?=\s--|\s*\n)", text):
        yield HelpOption(tuple(filter(None, match.groups())))
    for match in re.finditer(r"'(-\d)\|(-\d)'|'(-A) <", text):
        yield from (HelpOption((name,)) for name in match.groups() if name)
    for name in ("-V", "--version", "-h", "--help"):
        if name in text:
            yield HelpOption((name,))


def _ip(text: str) -> Iterator[HelpOption]:
    """Parse `ip`'s options, the verbs of an object, and its words, with or without a value.

    Words in a definition of values (`TYPE :=`, encapsulations) are not options.
    """
    for match in re.finditer(r"(?<=[\s|{])-(\w+)(?:\[([\w-]+)\])?(?=[\s|}])", text):
        long = (f"-{match[1]}{match[2]}",) if match[2] else ()
        yield HelpOption((f"-{match[1]}", *long), any_of=True)
    object_help = text[text.rfind("Usage: ip ") :]
    object_help = re.split(r"\n(?:ENCAPTYPE|ENCAPHDR|SEG6HDR) :=", object_help)[0]
    usage = re.sub(r"\n(?:TYPE|FEATURES) := [^\n]*(?:\n {10,}[^\n]*)*", "", object_help)
    for match in re.finditer(r"\bip (?:address|link|route) \[? ?(\{[^}]*\}|[a-z]+)", usage):
        for verb in re.findall(r"[a-z]+", match[1]):
            if match[1].startswith("{") and re.search(r"[A-Z]", match[1]):
                break
            yield HelpOption((verb,))
    for match in re.finditer(r"(?<=[\[{|\s] )([a-z][a-z_-]+) (?=[A-Z]{2,}|\{ )", usage):
        yield HelpOption((match[1],), "required")
    for match in re.finditer(r"\[ ?([a-z][a-z_-]+) ?\]", usage):
        yield HelpOption((match[1],))


_READERS: Mapping[str, Callable[[str], Iterator[HelpOption]]] = {
    "find": _find,
    "ps": _ps,
    "dd": _dd,
    "ethtool": _ethtool,
    "netstat": _netstat,
    "ip-addr": _ip,
    "ip-link": _ip,
    "ip-route": _ip,
}


LARGEST = 1 << 20
"""Maximum size of a manual page in bytes, before and after decompression (our choice)."""

_TAG = re.compile(r"\.(?:TP|IP|It|HP)\b ?(.*)")
_HEADING = re.compile(r"\.S[hHsS] (.*)")
_MACRO = re.compile(r"\.(?:B|I|R|BI|BR|IB|IR|RB|RI|SM|SB|Nm|Ar|Fl|Op|Pa|Cm) (.*)")
_ESCAPE = re.compile(r"\\(?:f(?:\[[A-Z]*\]|\([A-Z]{2}|.)|s[+-]?\d|[&|^%/,:])")
_SPECIAL = {
    r"\-": "-", r"\(aq": "'", r"\(cq": "'", r"\(oq": "'", r"\(lq": '"', r"\(rq": '"',
    r"\(bu": "*", r"\e": "\\", r"\ ": " ", r"\~": " ", r"\(en": "-", r"\(em": "-",
}  # fmt: skip


def manual_text(page: bytes) -> str:
    """Convert a roff manual page, plain or gzipped, to text; "" if it cannot be unpacked.

    The result is "" for a page with BSD macros (`.Dd`) as well.

    An option's tag is on a separate line, and its description below is indented further. The
    synopsis begins with the line `SYNOPSIS`. Pages are truncated to `LARGEST` bytes.
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
    synopsis: list[str] | None = None  # the words of the current usage line
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
    """Return the arguments of a macro with two fonts, which prints them without blanks."""
    words = re.findall(r'"((?:[^"]|"")*)"|((?:\\.|\S)+)', arguments)
    return "".join(_plain(quoted or bare) for quoted, bare in words)


def _plain(text: str) -> str:
    for written, shown in _SPECIAL.items():
        text = text.replace(written, shown)
    return _ESCAPE.sub("", text)
