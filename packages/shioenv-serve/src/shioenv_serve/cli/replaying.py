"""Output of `shioenv serve replay`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shioenv.cli.printing import printable, table
from shioenv.cli.shared import Printout
from shioenv.files.documents import parse_json

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


def play_visit(visit: LoggedVisit, speed: float, pause: float) -> Printout:
    """Play a visit as it was seen; without recordings, print its lines and their output."""
    if not visit.recordings:
        return Printout(visit.to_json(), _lines(visit))
    return Printout(visit.to_json(), _played(visit, speed, pause))


def repeat_visit(visit: LoggedVisit, system: str | None) -> Printout:
    """Execute a visit again, and print the differences of each line."""
    from shioenv.bash.words import quoted
    from shioenv.behavior.observe import open_sandbox
    from shioenv.live.resident import shell_of
    from shioenv_serve.ssh.machines import login_accounts
    from shioenv_serve.visit_log import repeated

    with open_sandbox(system) as runner, shell_of(runner, "/") as shell:
        if visit.user is not None:
            known = login_accounts(runner.system)
            account = known.get(visit.user) or next(iter(known.values()))
            shell.run(f"cd {quoted(account.home)}")
        done = list(repeated(visit.lines, shell))
    document = {**visit.to_json(), "lines": [line.to_json() for line in done]}
    return Printout(document, list(_compared(done)), status=int(any(x.differs for x in done)))


def _compared(done: Sequence[RepeatedLine]) -> Iterator[str]:
    from shioenv.domain.readable import changes

    for line in done:
        told = ", ".join(line.differs) or "the same"
        if line.behavior is None:
            told = f"not executed: {line.refusal}"
        yield f"{printable(line.line.text)}: {told}"
        if line.behavior is not None and "files" in line.differs:
            yield from (f"  logged: {text}" for text in _changes(line.line.told))
            operations = line.behavior.patch.operations
            yield from (f"  again:  {change}" for change in changes(operations, START))
    same = sum(line.behavior is not None and not line.differs for line in done)
    yield f"{same} of {len(done)} lines behaved as before"


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
        output = line.told.get("output")
        if isinstance(output, str):
            yield from map(printable, output.splitlines())
        yield from (f"  {text}" for text in _changes(line.told))


def _played(visit: LoggedVisit, speed: float, pause: float) -> Iterator[bytes]:
    from shioenv.errors import LogError
    from shioenv.live.asciicast import RESET, CurrentLine, Harmless, read_asciicast

    for place in visit.recordings:
        now, screen, current = 0.0, Harmless(), CurrentLine()
        try:
            for seconds, kind, text in read_asciicast(Path(place)):
                time.sleep(min(pause, max(0.0, seconds - now)) / speed)
                now = seconds
                if kind == "o":
                    shown = screen.of(text)
                    current.follow(shown)
                    yield shown.encode("utf-8", "replace")
                elif kind == "m":
                    yield current.above(_marked(text)).encode("utf-8", "replace")
        except OSError as error:
            raise LogError(f"{place} cannot be read: {error.strerror}", named=error) from None
        finally:
            yield f"{RESET}\r\n".encode()


def _marked(text: str) -> list[str]:
    """Format the changes in a recording's marker, one text line per change."""
    try:
        told = parse_json(text)
    except ValueError:
        return []
    return [f"  {change}" for change in _changes(told if isinstance(told, dict) else {})]
