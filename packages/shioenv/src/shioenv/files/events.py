"""Lines that visitors of honeypots typed, read from logs: ours, and Cowrie's own.

Both have a JSON object on each line, with the names of Cowrie's events and fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shioenv.files.documents import parse_json

TYPED: Final = "cowrie.command.input"
"""The event of a line that was typed, or of a command that was sent."""


@dataclass(frozen=True, slots=True)
class VisitorLine:
    """A line of a visitor's."""

    number: int
    """The number of the line in the log, from 1."""
    shell: tuple[str, int]
    """The shell that it was typed in: the session, and its channel where the log tells it."""
    text: str
    is_known: bool
    """Whether the text is what ran: the log has all of it, and no key filled in the rest."""


def events(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a log, each with the number of its line.

    What is no event is passed over: a line that a full disk cut, another program's, or one that is
    nested too deeply.
    """
    for number, line in lines:
        try:
            event = parse_json(line)
        except ValueError:
            continue
        if isinstance(event, dict) and all(
            isinstance(event.get(name), str) for name in ("eventid", "session")
        ):
            yield number, event


def is_cut(event: Mapping[str, Any], name: str) -> bool:
    """Whether the log has only the beginning of a field of an event."""
    cut = event.get("cut")
    return isinstance(cut, list) and name in cut


def typed_lines(lines: Iterable[tuple[int, bytes]]) -> Iterator[VisitorLine]:
    """What was typed, in the order of the log."""
    for number, event in events(lines):
        text, channel = event.get("input"), event.get("channel", 0)
        if event["eventid"] == TYPED and isinstance(text, str) and isinstance(channel, int):
            known = not event.get("edited") and not is_cut(event, "input")
            yield VisitorLine(number, (event["session"], channel), text, known)
