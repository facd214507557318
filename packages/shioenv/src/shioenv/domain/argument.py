"""An argument: text with up to two no-space marks; how arguments are joined into a line.

A list of arguments must stay valid shell input whichever of its members are removed. So bundled
short options are kept apart and carry marks instead (Appendix A): `-l<ns>`, `<ns>a<ns>`, `<ns>T 32`
is `-laT 32`. The list still means something without its first or its second member.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shioenv.errors import InputError

MARK = "<ns>"
_LITERAL = re.compile(r"<(\\*)ns>")
_ESCAPED = re.compile(r"<\\(\\*)ns>")


@dataclass(frozen=True, slots=True)
class Argument:
    """Finished text of one removable unit, with its no-space marks.

    `joins_left` says that the text continues a bundle of short options which its left neighbour
    began. `joins_right` says that a right neighbour may continue the bundle. The text may contain
    blanks: `-B 512K` is one argument. Errors: InputError for an empty text.
    """

    text: str
    joins_left: bool = False
    joins_right: bool = False

    def __post_init__(self) -> None:
        if not self.text:
            raise InputError("an argument has no text", hint="leave an empty argument out")

    @property
    def marked(self) -> str:
        r"""The text with its marks, as `input_args` shows it: `-l<ns>`, `<ns>T 32`.

        A literal `<ns>` inside the text is written `<\ns>` (and `<\ns>` as `<\\ns>`, and so on),
        so `parse` always gives this argument back.
        """
        text = _LITERAL.sub(r"<\\\1ns>", self.text) if "<" in self.text else self.text
        left, right = MARK * self.joins_left, MARK * self.joins_right
        return f"{left}{text}{right}"

    @classmethod
    def parse(cls, marked: str) -> Argument:
        """The argument that `marked` shows; InputError where nothing is left beside the marks."""
        joins_left = marked.startswith(MARK)
        text = marked[len(MARK) :] if joins_left else marked
        joins_right = text.endswith(MARK)
        text = text[: -len(MARK)] if joins_right else text
        if "<" in text:
            text = _ESCAPED.sub(r"<\1ns>", text)
        return cls(text, joins_left, joins_right)


def join(arguments: Iterable[Argument]) -> str:
    """The arguments as one line.

    Two neighbours that both mark their shared border are joined. An argument that continues a
    bundle whose beginning is gone gets its dash back: `<ns>a` after anything unmarked is ` -a`.
    Appendix A shows only the first half of the rule. The second half is ours, because sub-inputs
    need it. All others are separated by one blank.
    """
    parts: list[str] = []
    joinable = False
    for argument in arguments:
        if parts:
            if not argument.joins_left:
                parts.append(" ")
            elif not joinable:
                parts.append(" -")
        parts.append(argument.text)
        joinable = argument.joins_right
    return "".join(parts)


def render(command: str, arguments: Sequence[Argument]) -> str:
    """The command followed by its arguments as one line, joined by the rules of `join`.

    The command token never joins: a first argument that continues a bundle gets its dash back.
    """
    return join((Argument(command), *arguments))
