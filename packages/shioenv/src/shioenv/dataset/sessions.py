"""Inputs with their histories, from the logs of honeypots."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

from shioenv.bash.program import Simple, Source
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands as commands_of
from shioenv.bash.walk import redirects_of
from shioenv.dataset.external import Accepted, CommandList, readable, sample_of
from shioenv.dataset.lines import MOST_REJECTED, Distinct, Rejection, read_lines
from shioenv.errors import ImportFileError
from shioenv.files.events import VisitorLine, typed_lines
from shioenv.grammar.parse import InputParser
from shioenv.sandbox.base import LONGEST_INPUT

MOST_HISTORY: Final = 100
"""Lines before an input at most; ours, because each of them is run for each of its sub-inputs."""

_HARMLESS: Final = ("empty", "only a comment")
"""Why a line is no input that changes nothing for those after it."""


def read_sessions(
    commands: CommandList,
    parser: InputParser,
    directories: Sequence[str],
    exists: Callable[[str], bool] = lambda directory: True,
) -> Accepted:
    """The lines of a log's sessions, each with those before it in its shell as its history.

    A session starts in the first of `directories`. Left out are lines that `import_commands` would
    leave out, and those with more than `MOST_HISTORY` lines before them. So are lines that history
    or completion filled in, lines that the log cut, and those that end no command, like `cat <<E`.
    All that follows a line that is left out is left out in its shell, as that line ran. So is what
    follows a line that leaves its shell. Errors: ImportFileError.
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
            sample, reason = sample_of(parser, line.text, directories[0], before)
            reason = reason or distinct.refusal(sample)
            if reason is None:
                samples.append(sample)
        if reason is not None:
            if len(rejected) == MOST_REJECTED:
                raise ImportFileError(
                    f"{commands.path}:{line.number}: more than {MOST_REJECTED:,} lines cannot be "
                    "recorded"
                )
            rejected.append(Rejection.of(line.number, line.text.encode("utf-8", "replace"), reason))
    return Accepted(digest.hexdigest(), count, tuple(samples), tuple(rejected))


class _Typed:
    """What was typed in a shell so far."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self._over = ""

    def take(self, line: VisitorLine) -> tuple[tuple[str, ...], str | None]:
        """The lines before a line, which comes before those that follow, and why it is no input."""
        before = tuple(self.history)
        reason = self._over or self._refusal(line)
        if reason is None:
            self.history.append(line.text)
            if _leaves(read(line.text)):
                self._over = "after a line that leaves its shell"
        elif reason not in _HARMLESS and not self._over:
            self._over = "after a line that is left out"
        return before, reason

    def _refusal(self, line: VisitorLine) -> str | None:
        if not line.is_known:
            return "history or completion filled it in, or the log cut it"
        if len(self.history) > MOST_HISTORY:
            return f"more than {MOST_HISTORY:,} lines before it"
        try:
            content = line.text.encode()
        except UnicodeEncodeError:
            return "half a character: JSON names one of two surrogates"
        if len(content) > LONGEST_INPUT:
            return "too long"
        return readable(content)[1] or (None if _is_whole(line.text) else "no whole command")


def _is_whole(text: str) -> bool:
    """Whether a line ends each command that it begins, here-documents included."""
    try:
        source = read(text)
    except Refused:
        return False
    return all(
        redirect.ended for command, _ in commands_of(source) for redirect in redirects_of(command)
    )


def _leaves(source: Source) -> bool:
    """Whether a command of the shell's own may end it: `exit`, or `exec` of a program."""
    for job in source.program:
        for _, pipeline in job.pipelines:
            match pipeline.stages:
                case (Simple(words=("exit" | "logout", *_)),) | (Simple(words=("exec", _, *_)),):
                    return True
    return False
