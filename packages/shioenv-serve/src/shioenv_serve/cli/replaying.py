"""Output of `shioenv serve replay`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shioenv.cli.printing import counted, printable, table
from shioenv.cli.shared import Printout
from shioenv.files.documents import parse_json
from shioenv.files.regular import open_regular

if TYPE_CHECKING:
    from shioenv_serve.visit_log import LoggedVisit, RepeatedLine

START: Final = "/"
"""The directory to which names in a log's patches are relative."""


def visits_table(visits: Sequence[LoggedVisit]) -> Printout:
    """Return a table of all visits."""
    rows = table(["session", "began", "address", "user", "typed"], left=4)
    for visit in visits:
        user = "" if visit.user is None else printable(visit.user)
        facts = (visit.session, visit.began, visit.address)
        rows.add_row(*map(printable, facts), user, f"{visit.typed:,}")
    return Printout([visit.to_json() for visit in visits], [rows])


def play_visit(visit: LoggedVisit, speed: float, pause: float, *, plain: bool) -> Printout:
    """Play a visit as it was seen (`plain`: as text); without recordings, print its lines."""
    if not visit.recordings:
        return Printout(visit.to_json(), _lines(visit))
    played = _played(visit, speed, 0 if plain else pause)
    return Printout(visit.to_json(), _plain(played) if plain else played)


def repeat_visit(visit: LoggedVisit, system: str | None) -> Printout:
    """Execute a visit again, and print the differences of each line."""
    from shioenv.bash.words import quoted
    from shioenv.behavior.observe import open_sandbox
    from shioenv.live.resident import ResidentShell, shell_of
    from shioenv_serve.ssh.machines import login_accounts, run_with_input
    from shioenv_serve.visit_log import repeated

    with open_sandbox(system) as runner, shell_of(runner, "/") as shell:
        feed = None
        if visit.user is not None:
            known = login_accounts(runner.system)
            account = known.get(visit.user) or next(iter(known.values()))
            shell.run(f"cd {quoted(account.home)}")
            if isinstance(shell, ResidentShell):
                feed = partial(run_with_input, shell, account)
        done = list(repeated(visit.lines, shell, visit.inputs, feed))
    document = {**visit.to_json(), "lines": [line.to_json() for line in done]}
    return Printout(document, list(compared(done)), status=int(any(x.differs for x in done)))


def compared(done: Sequence[RepeatedLine]) -> Iterator[str]:
    """Format what was compared of each line, and the changes that differ."""
    from shioenv.domain.readable import changes

    for line in done:
        yield f"{printable(line.line.text)}: {_comparison(line)}"
        if line.behavior is not None and "files" in line.differs:
            yield from (f"  logged: {text}" for text in _changes(line.line.fields))
            operations = line.behavior.patch.operations
            yield from (f"  again:  {change}" for change in changes(operations, START))
    same = sum(line.behavior is not None and not line.differs for line in done)
    yield f"no difference in {same} of {counted(len(done), 'line')}"


_LABELS: Final = {"exit_code": "exit code", "output": "output", "files": "changes"}


def _comparison(line: RepeatedLine) -> str:
    """Format what was compared of a line, and what was not."""
    if line.behavior is None:
        return f"not repeated: {line.refusal}"
    same = [name for name in _LABELS if name not in {*line.unknown, *line.differs}]
    missing = "{} not in the log" if not line.line.fields.get("cut") else "{} not whole in the log"
    groups = {"different {}": line.differs, "same {}": same, missing: line.unknown}
    return "; ".join(
        form.format(", ".join(_LABELS[name] for name in names))
        for form, names in groups.items()
        if names
    )


def _changes(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the logged changes of a line as text. An invalid patch is printed unchanged."""
    from shioenv.domain.patch import ContextPatch
    from shioenv.domain.readable import changes
    from shioenv.errors import PatchError

    text = json.dumps(told.get("context_patch") or [])
    try:
        yield from map(str, changes(ContextPatch.from_json(text).operations, START))
    except PatchError:
        yield printable(text)


def _lines(visit: LoggedVisit) -> Iterator[str]:
    for line in visit.lines:
        yield f"$ {printable(line.text)}"
        output = line.fields.get("output")
        if isinstance(output, str):
            yield from map(printable, output.splitlines())
        yield from (f"  {text}" for text in _changes(line.fields))


_TRANSFER: Final = re.compile(r"\0|\A[CDT]\d+ \d")
"""Matches a protocol's first output: SFTP, rsync, or a header of `scp`; not a usage message."""


def _played(visit: LoggedVisit, speed: float, pause: float) -> Iterator[bytes]:
    from shioenv.errors import LogError
    from shioenv.live.asciicast import CurrentLine
    from shioenv_serve.visit_log import PROTOCOL

    for place in visit.recordings:
        now, screen, current = 0.0, Harmless(), CurrentLine()
        transfer, hidden = None, False
        try:
            for seconds, kind, text in read_asciicast(Path(place)):
                time.sleep(min(pause, max(0.0, seconds - now)) / speed)
                now = seconds
                if kind == "title" and text != "shell":
                    yield f"$ {printable(text)}\r\n".encode()
                    transfer = PROTOCOL.match(text)
                elif kind == "o" and transfer and (hidden or _TRANSFER.search(text)):
                    if not hidden:
                        yield f"  the protocol of {transfer[1]} is not shown\r\n".encode()
                    hidden = True
                elif kind == "o":
                    shown = screen.of(text)
                    current.follow(shown)
                    yield shown.encode("utf-8", "replace")
                elif kind == "m":
                    yield current.above(_marked(text)).encode("utf-8", "replace")
        except OSError as error:
            raise LogError(f"{place} cannot be read: {error.strerror}", named=error) from None
        finally:
            yield f"{RESET}\r\n".encode()


def _plain(played: Iterator[bytes]) -> Iterator[str]:
    for line in b"".join(played).decode().split("\n"):
        kept: list[str] = []
        for character in _SEQUENCE.sub("", line.rpartition("\r\x1b[2K")[2]):
            if character != "\b":
                kept.append(character)
            elif kept:
                kept.pop()
        yield printable("".join(kept).translate(dict.fromkeys(b"\x07\x0b\x0c\r")))


def _marked(text: str) -> list[str]:
    """Format the changes in a recording's marker, one text line per change."""
    try:
        told = parse_json(text)
    except ValueError:
        return []
    return [f"  {change}" for change in _changes(told if isinstance(told, dict) else {})]


class AsciicastEvent(NamedTuple):
    """An event of a recording."""

    seconds: float
    """Seconds since the recording's beginning."""
    kind: str
    """`o` for output, `i` for typed input, `m` for a marker, `title` for the header's title."""
    text: str


def read_asciicast(file: Path) -> Iterator[AsciicastEvent]:
    """Iterate over a recording's events. Malformed lines, such as a cut one, are skipped.

    Errors: OSError as `open_regular` raises it.
    """
    with open_regular(file) as lines:
        for line in lines:
            try:
                event = parse_json(line)
                titled = isinstance(event, dict)
                seconds, kind, text = (0, "title", event["title"]) if titled else event
                yield AsciicastEvent(float(seconds), str(kind), str(text))
            except (KeyError, ValueError, TypeError, OverflowError):
                continue


_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X].*?(?:\x1b\\|\x07|\Z)|[ -/]+[0-~]|[0-~])"
    r"|[\x80-\x9f]|[\x00-\x06\x0e-\x1f\x7f]",
    re.DOTALL,
)
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[ -/]*|[\]P^_X][^\x07\x1b]*\x1b?)?\Z")
_HARMLESS: Final = re.compile(
    r"\x1b\[(?:[0-9;]*[A-HJKLMPSTXdfmr@]|\?(?:25|1049|2004)[hl])|\x1b[78M]"
)
_LONGEST: Final = 4096

RESET: Final = "\x1b[0m\x1b[r\x1b[?1049l\x1b[?25h\x1b[?2004l"
"""Resets a terminal after `Harmless` texts were shown on it."""


class Harmless:
    """Filters a recording's texts so that they are safe to show on a terminal.

    The recorded programs may have written anything. Escape sequences that do more than move, colour
    and erase are left out. Examples are titles, the clipboard, other character sets, and queries
    that a terminal answers. An incomplete sequence at the end is kept for the next text. Each ESC
    in the result begins a harmless sequence.
    """

    def __init__(self) -> None:
        self._kept = ""

    def of(self, text: str) -> str:
        """Return the harmless part of the next text."""
        text = self._kept + text
        cut = _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
        self._kept = text[cut.start() :] if cut else ""
        text = text[: cut.start()] if cut else text
        return _SEQUENCE.sub(lambda one: one[0] if _HARMLESS.fullmatch(one[0]) else "", text)
