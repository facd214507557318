"""Read visits from a log of `shioenv serve`, and replay them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shioenv.domain.answer_json import behavior_json, behavior_of
from shioenv.domain.behavior import Behavior
from shioenv.errors import AnswerError, InputError, LogError
from shioenv.files.regular import open_regular
from shioenv.live.shell import Shell
from shioenv_serve.sessions import LOGIN, TYPED, events, is_cut

LOG: Final = "log.jsonl"
"""The log's name in a directory of `shioenv serve ssh`."""

RECORDINGS: Final = "recordings"
"""The directory of recordings, next to the log."""

PROTOCOL: Final = re.compile(r"(?:\S*/)?(scp|sftp-server|rsync)(?= |$)")
"""Commands of transfer protocols, which use input and output at the same time."""

STANDARD_INPUT: Final = "standard input"
"""The name reported for a command's whole input."""

_CLOCK: Final = frozenset({"month", "day", "year", "time"})
"""Fields of a file's modification time, which differs between any two visits."""

_HISTORY: Final = re.compile(r"/fs/(?:[^/]*~1)?\.bash_history(?:/|\Z)")
"""Matches the JSON Pointer of a history file in a patch, or of a part of it."""


@dataclass(slots=True)
class LoggedLine:
    """A logged line with its effects."""

    text: str
    fields: Mapping[str, Any]
    """The fields of the event, named as in `shioenv run --json`."""
    channel: str = ""
    """The channel that sent the line; empty for a script on standard input."""


@dataclass(slots=True)
class LoggedVisit:
    """A visit reconstructed from the log."""

    session: str
    address: str = ""
    began: str = ""
    user: str | None = None
    """The login name; None without a login."""
    typed: int = 0
    """The number of typed lines and sent commands."""
    lines: list[LoggedLine] = field(default_factory=list)
    """Lines with their effects. Lines that were typed at once count as one."""
    recordings: list[str] = field(default_factory=list)
    """Recording files, for `asciinema play`."""
    inputs: dict[str, Path | None] = field(default_factory=dict)
    """Standard inputs by channel; None if one was not kept."""
    channels: set[str] = field(default_factory=set)
    """Channels with typed lines or a sent command."""

    def to_json(self) -> dict[str, Any]:
        """Return the visit as a JSON document."""
        return {
            "session": self.session, "src_ip": self.address, "began": self.began,
            "username": self.user, "typed": self.typed, "recordings": self.recordings,
            "lines": [{"input": line.text, **line.fields} for line in self.lines],
        }  # fmt: skip


def read_visits(place: Path) -> dict[str, LoggedVisit]:
    """Read the visits of a log, by session, in order. `place` is a log, or a server's directory.

    Lines that are not events are skipped. Errors: LogError if the log cannot be read.
    """
    file = place / LOG if place.is_dir() else place
    found: dict[str, LoggedVisit] = {}
    try:
        with open_regular(file) as log:
            for _, event in events(enumerate(log, 1)):
                visit = found.setdefault(event["session"], LoggedVisit(event["session"]))
                _take(visit, event, file.parent)
    except OSError as error:
        raise LogError(
            f"{file} cannot be read: {error.strerror}",
            hint="use the directory of `shioenv serve ssh`, or the log of `shioenv serve openai`",
            named=error,
        ) from None
    return found


_OWN: Final = ("runner", "confidence", "latency", "channel", "again", "cut")
_BEHAVIOR: Final = ("exit_code", "output", "output_b64", "context_patch", "content_digests")


def _take(visit: LoggedVisit, event: Mapping[str, Any], directory: Path) -> None:
    """Add an event. `directory` is the log's: it may have been moved since the event."""
    channel = str(event.get("channel", ""))
    visit.address = visit.address or str(event.get("src_ip", ""))
    visit.began = visit.began or str(event.get("timestamp", ""))
    kind = event["eventid"]
    if kind == TYPED:
        visit.typed += 1
        visit.channels.add(channel)
    elif kind == LOGIN:
        visit.user = str(event.get("username", ""))
    elif kind == "shioenv.command" and isinstance(event.get("input"), str):
        fields = {name: event[name] for name in (*_OWN, *_BEHAVIOR) if name in event}
        typed = channel if channel in visit.channels else ""
        visit.lines.append(LoggedLine(event["input"], fields, typed))
    elif event.get("filename") == STANDARD_INPUT:
        digest = re.fullmatch("[0-9a-f]{64}", str(event.get("shasum")))
        visit.inputs[channel] = directory / "uploads" / digest[0] if digest else None
    elif kind == "cowrie.log.closed" and _is_path(event.get("cast")):
        visit.recordings.append(str(directory / RECORDINGS / Path(event["cast"]).name))


def _is_path(value: object) -> bool:
    """Whether a value is a valid path."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class RepeatedLine:
    """A line that was executed again, or could not be."""

    line: LoggedLine
    behavior: Behavior | None
    """None if the line was not executed."""
    differs: tuple[str, ...]
    """The differences from the log: `exit_code`, `output`, `files`.

    Fields that the log lacks or truncated are not compared. Neither are times and changes of the
    shell's state.
    """
    refusal: str | None = None
    """The reason why the line was not executed."""

    @property
    def unknown(self) -> list[str]:
        """The fields that were not compared, because the log lacks or truncates them."""
        fields = self.line.fields
        absent = [name for name in ("exit_code", "output") if fields.get(name) is None]
        compared = {"output": "output", "output_b64": "output", "context_patch": "files"}
        cut = [compared[name] for name in compared if is_cut(fields, name)]
        return [*dict.fromkeys(absent + cut)]

    def to_json(self) -> dict[str, Any]:
        """Return the line as a JSON document."""
        return {
            "input": self.line.text, "differs": list(self.differs),
            "not_compared": self.unknown,
            "logged": dict(self.line.fields),
            "again": None if self.behavior is None else behavior_json(self.behavior),
            **({} if self.refusal is None else {"refusal": self.refusal}),
        }  # fmt: skip


def repeated(
    lines: Sequence[LoggedLine],
    shell: Shell,
    inputs: Mapping[str, Path | None] | None = None,
    feed: Callable[[str, bytes], Behavior] | None = None,
) -> Iterator[RepeatedLine]:
    """Run a visit's lines in a shell until it ends, and yield each with its differences.

    The shell's start directory is `/`, the base of paths in a server's patches. `feed` runs a
    command with an input from `inputs`. Truncated and invalid lines are not executed, nor
    commands whose input is not known. Errors: those of `Shell.run` and `feed`.
    """
    for line in lines:
        if shell.ended:
            return
        if is_cut(line.fields, "input"):
            yield RepeatedLine(line, None, (), "the log contains only its beginning")
            continue
        try:
            content = _input_of(line, inputs or {})
            if content is not None and feed is None:
                raise InputError("this shell takes no input")
            behavior = feed(line.text, content) if content and feed else shell.run(line.text)
        except InputError as error:
            yield RepeatedLine(line, None, (), error.message)
        else:
            yield RepeatedLine(line, behavior, tuple(_differs(line.fields, behavior)))


def _input_of(line: LoggedLine, inputs: Mapping[str, Path | None]) -> bytes | None:
    """Return a command's kept standard input; None if it had none. Errors: InputError."""
    speaks = line.fields.get("output") is not None and PROTOCOL.match(line.text)
    if not speaks and line.channel not in inputs:
        return None
    if speaks or not (file := inputs.get(line.channel)) or not file.is_file():
        raise InputError("its input was not kept")
    return file.read_bytes()


def _differs(fields: Mapping[str, Any], behavior: Behavior) -> Iterator[str]:
    if fields.get("exit_code") not in (None, behavior.exit_code):
        yield "exit_code"
    output = fields.get("output")
    is_whole = not is_cut(fields, "output") and not is_cut(fields, "output_b64")
    if isinstance(output, str) and is_whole:
        try:
            logged = behavior_of({"output": output, "output_b64": fields.get("output_b64")}).output
        except AnswerError:
            logged = None
        if logged != behavior.output:
            yield "output"
    patch = behavior_json(behavior)["context_patch"]
    is_whole = not is_cut(fields, "context_patch")
    # a terminal's shell writes its history when it ends; here it has no terminal
    ends = "output" in fields and output is None and fields.get("exit_code") is not None
    if is_whole and _files(fields.get("context_patch"), ends) != _files(patch, ends):
        yield "files"


def _files(patch: object, without_history: bool) -> list[object]:
    """Return a patch's file operations without times, and without Bash's history if asked."""
    found = []
    for operation in patch if isinstance(patch, list) else []:
        if not isinstance(operation, list) or len(operation) < 2:
            continue
        path = operation[1]
        if not isinstance(path, str) or not path.startswith("/fs/"):
            continue
        if path.rpartition("/")[2] in _CLOCK or (without_history and _HISTORY.match(path)):
            continue
        facts = [
            {name: fact for name, fact in value.items() if name not in _CLOCK}
            if isinstance(value, dict)
            else value
            for value in operation[2:]
        ]
        found.append([*operation[:2], *facts])
    return sorted(found, key=repr)
