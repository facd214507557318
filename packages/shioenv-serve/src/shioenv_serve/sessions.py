"""Inputs with their histories, from the logs of this package's honeypot and of Cowrie.

Both have a JSON object on each line, with the names of Cowrie's events and fields.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shioenv.bash.program import Simple, Source
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands as commands_of
from shioenv.bash.walk import redirects_of
from shioenv.dataset.external import Accepted, CommandList, readable, sample_of
from shioenv.dataset.input_lines import MOST_REJECTED, Distinct, Rejection, read_lines
from shioenv.errors import ImportFileError
from shioenv.files.documents import parse_json
from shioenv.grammar.parse import InputParser
from shioenv.sandbox.base import LONGEST_INPUT

MOST_HISTORY: Final = 100
"""Maximum number of lines before an input (our choice, because each is run for every sub-input)."""

_HARMLESS: Final = ("empty", "only a comment")
"""Reasons for leaving out a line that do not affect later lines."""


def read_sessions(
    commands: CommandList,
    parser: InputParser,
    directories: Sequence[str],
    exists: Callable[[str], bool] = lambda directory: True,
) -> Accepted:
    """Return the lines of a log's sessions, each with the lines before it in its shell as history.

    A session starts in its user's home directory. If `commands` has start directories, or the log
    no login, it starts in the first of `directories`. Lines that `import_commands` would omit are
    omitted, and so are lines with more than `MOST_HISTORY` lines before them. Lines filled in by
    history or completion, lines truncated by the log, and
    incomplete commands such as `cat <<E` are omitted too. An omitted line did run, so all later
    lines of its shell are omitted too. The lines after a line that leaves its shell are also
    omitted. Errors: ImportFileError.
    """
    digest = hashlib.sha256()
    shells: dict[tuple[str, int], _Typed] = {}
    distinct = Distinct()
    samples: list[bytes] = []
    rejected: list[Rejection] = []
    count = 0
    for line in typed_lines(read_lines(commands.path, digest.update)):
        count += 1
        before, reason = shells.setdefault(line.shell, _Typed()).take(line)
        if reason is None:
            home = None if commands.start_directories else _home(line.user, exists)
            sample, reason = sample_of(parser, line.text, home or directories[0], before)
            reason = reason or distinct.refusal(sample)
            if reason is None:
                samples.append(sample)
        if reason is not None:
            if len(rejected) == MOST_REJECTED:
                raise ImportFileError(
                    f"{commands.path}:{line.number}: more than {MOST_REJECTED:,} lines cannot be "
                    "imported"
                )
            rejected.append(Rejection.of(line.number, line.text.encode("utf-8", "replace"), reason))
    return Accepted(digest.hexdigest(), count, tuple(samples), tuple(rejected))


def _home(user: str | None, exists: Callable[[str], bool]) -> str | None:
    """Return the home directory of a login; for unknown names, the home directory of `root`."""
    if user is None:
        return None
    named = f"/home/{user}"
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", user)
    homes = ([named] if plain and user != "root" else []) + ["/root"]
    return next(filter(exists, homes), None)


class _Typed:
    """The lines typed in a shell so far."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self._over = ""

    def take(self, line: VisitorLine) -> tuple[tuple[str, ...], str | None]:
        """Add a line; return the lines before it and the reason if it is left out."""
        before = tuple(self.history)
        reason = self._over or self._refusal(line)
        if reason is None:
            self.history.append(line.text)
            if _leaves(read(line.text)):
                self._over = "after a line that ended its shell"
        elif reason not in _HARMLESS and not self._over:
            self._over = "after a skipped line"
        return before, reason

    def _refusal(self, line: VisitorLine) -> str | None:
        if not line.is_known:
            return "filled in by history or completion, or truncated in the log"
        if len(self.history) > MOST_HISTORY:
            return f"more than {MOST_HISTORY:,} preceding lines"
        try:
            content = line.text.encode()
        except UnicodeEncodeError:
            return "invalid Unicode: a JSON escape names a lone surrogate"
        if len(content) > LONGEST_INPUT:
            return "too long"
        return readable(content)[1] or (None if _is_whole(line.text) else "incomplete command")


def _is_whole(text: str) -> bool:
    """Whether a line completes each command that it begins, here-documents included."""
    try:
        source = read(text)
    except Refused:
        return False
    return all(
        redirect.ended for command, _ in commands_of(source) for redirect in redirects_of(command)
    )


def _leaves(source: Source) -> bool:
    """Whether a command may end the shell that runs it: `exit`, or `exec` of a program."""
    for job in source.program:
        for _, pipeline in job.pipelines:
            match pipeline.stages:
                case (Simple(words=("exit" | "logout", *_)),) | (Simple(words=("exec", _, *_)),):
                    return True
    return False


TYPED: Final = "cowrie.command.input"
"""The event of a line that was typed, or of a command that was sent."""

LOGIN: Final = "cowrie.login.success"
"""The event of an accepted login."""


@dataclass(frozen=True, slots=True)
class VisitorLine:
    """A line that a visitor typed or sent."""

    number: int
    """The number of the line in the log, from 1."""
    shell: tuple[str, int]
    """The shell that received it: the session, and its channel if the log has it."""
    text: str
    is_known: bool
    """Whether the text is exactly the input that ran: neither cut nor completed by a key."""
    user: str | None = None
    """The login name; None if the log has no login of the session."""


def events(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the events of a log, each with the number of its line.

    Malformed lines are skipped: a line cut by a full disk, a line of another program, or one that
    is nested too deeply.
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
    """Yield the typed lines, in the order of the log."""
    users: dict[str, str] = {}
    for number, event in events(lines):
        if event["eventid"] == LOGIN and isinstance(event.get("username"), str):
            users[event["session"]] = event["username"]
        text, channel = event.get("input"), event.get("channel", 0)
        if event["eventid"] == TYPED and isinstance(text, str) and isinstance(channel, int):
            known = not event.get("edited") and not is_cut(event, "input")
            user = users.get(event["session"])
            yield VisitorLine(number, (event["session"], channel), text, known, user)
