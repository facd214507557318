"""Parsing of operands in usage lines, and of option values named in help texts or manuals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_USAGE = 2000
"""Maximum number of characters of a usage line that are parsed (our choice)."""

MOST_FORMS = 12
"""Maximum number of usage lines that are parsed (our choice)."""

_INNERMOST = re.compile(r"\[[^\[\]]*\]")
_OPTIONAL_OPTIONS = re.compile(r"\[\s*(?:-|\+\w|[^\[\]]*\boptions?\b)", re.IGNORECASE)
_WANTED_OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*(?:[ =](?![-\[.|])\S+)?")
_PIECE = re.compile(r"\[|\]|\.{3}|…|\||[^\s\[\]|.…]+(?:\.(?!\.)[^\s\[\]|.…]+)*")
_OPERAND = re.compile(r"[A-Za-z][\w:/@-]*")
_QUOTED = re.compile(r"(?<!\w)(['\"\u2018])([\w.+-]{1,20})['\"\u2019](?!\w)")
_ONE_OF = re.compile(r"\bone of:? ((?:[\w+-]{1,20}, ){1,20}(?:or )?[\w+-]{1,20})")
_DEFAULT = re.compile(r"\bdefault(?:s to| is|:) ([A-Za-z0-9][\w.+-]{0,19})\b")
_NO_DEFAULT = frozenset({"is", "to", "the", "a", "all", "value", "for", "of", "output", "behavior"})


@dataclass(frozen=True, slots=True)
class UsageOperand:
    """An operand of a usage line: its name, and whether it is optional or repeatable."""

    name: str
    optional: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class UsageForm:
    """One usage line: its text, and the operands after the options."""

    text: str
    operands: tuple[UsageOperand, ...]
    wants_option: bool = False
    """Whether the form has a mandatory option."""


def usage_forms(command: str, text: str) -> tuple[UsageForm, ...]:
    """Return the distinct forms in a help text or a manual's synopsis, in order.

    Forms with a mandatory option are omitted if there are others.
    """
    forms: dict[tuple[UsageOperand, ...], UsageForm] = {}
    for line in _usage_lines(command, text):
        form = _form(line)
        if form.operands not in forms or not form.wants_option:
            forms.setdefault(form.operands, form)
    kept = [form for form in forms.values() if not form.wants_option] or list(forms.values())
    return tuple(kept)


def _usage_lines(command: str, text: str) -> Iterator[str]:
    """Yield the part after the command in each usage line."""
    shape = re.compile(
        rf"\s*(?:usage:|or:|synopsis:?)?\s*(?:\S*/)?{re.escape(command)}(?![\w-])(.*)",
        re.IGNORECASE,
    )
    usual = re.compile(r"\s*(?:usage|or|synopsis)\b", re.IGNORECASE)
    inside, found = False, 0
    for line in text[:100_000].splitlines():
        begins = usual.match(line) is not None
        match = shape.match(line[:LONGEST_USAGE])
        if begins or (inside and match):
            inside = True
            if match and found < MOST_FORMS:
                found += 1
                yield match[1]
        elif line.strip():
            inside = inside and line.startswith((" ", "\t")) and not found


def _form(line: str) -> UsageForm:
    rest = line
    while True:  # innermost brackets first: [-s [-]offset] is gone after two rounds
        shorter = _INNERMOST.sub(
            lambda found: (
                ""
                if _OPTIONAL_OPTIONS.match(found[0])
                else found[0].replace("[", "\x01").replace("]", "\x02")
            ),
            rest,
        )
        if shorter == rest:
            break
        rest = shorter
    rest = rest.replace("\x01", "[").replace("\x02", "]")
    rest = re.sub(r"(?<![\w])\bOPTIONS?\b(?:\.{3})?", "", rest)
    rest, wanted = _WANTED_OPTION.subn("", rest)
    return UsageForm(line.strip(), tuple(_operands(rest)), bool(wanted))


def _operands(text: str) -> Iterator[UsageOperand]:
    found: list[UsageOperand] = []
    depth, skip = 0, False
    for piece in _PIECE.findall(text):
        if piece in "[]":
            depth = max(0, depth + (1 if piece == "[" else -1))
        elif piece in {"...", "…"}:
            if found:
                last = found[-1]
                found[-1] = UsageOperand(last.name, last.optional, repeated=True)
        elif piece == "|":
            skip = True
        elif skip:
            skip = False
        elif name := _OPERAND.match(piece.strip("<>{}()'\"`,;")):
            operand = UsageOperand(name[0], optional=depth > 0)
            # FILE [FILE]... and FILE ... [FILE] are one operand that may be repeated
            if found and found[-1].name == operand.name and operand.optional:
                found[-1] = UsageOperand(operand.name, found[-1].optional, repeated=True)
            else:
                found.append(operand)
    yield from found


def named_values(text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the few values, if any, that a text names in its description of an option.

    These are words in quotes, a list after "one of", and the default.
    """
    said = _described(text, names)
    values = [value for _, value in _QUOTED.findall(said)]
    for listed in _ONE_OF.findall(said):
        values += [word for word in re.findall(r"[\w+-]+", listed) if word != "or"]
    if default := _DEFAULT.search(said):
        values += [] if default[1].lower() in _NO_DEFAULT else [default[1]]
    plain = [value for value in dict.fromkeys(values) if not value.startswith("-")]
    return tuple(plain[:12])


def _described(text: str, names: tuple[str, ...]) -> str:
    """Return the description of an option: its line, and the lines indented further."""
    begins = re.compile(
        r"(\s{0,10})(?:\S+,?\s+)?(?:" + "|".join(map(re.escape, names)) + r")(?![\w-])(.*)"
    )
    said: list[str] = []
    indent = 0
    for line in text[:400_000].splitlines():
        depth = len(line) - len(line.lstrip())
        if said and line.strip() and depth > indent and len(said) < 12:
            said.append(line.strip())
        elif said:
            break
        elif line.lstrip().startswith("-") and (match := begins.match(line)):
            indent = depth
            said.append(match[2])
    return " ".join(said)
