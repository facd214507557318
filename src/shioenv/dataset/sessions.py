"""Inputs with their histories, from the logs of honeypots."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

from shioenv.dataset.external import Accepted, CommandList, readable, sample_of
from shioenv.dataset.lines import MOST_REJECTED, Distinct, Rejection, read_lines
from shioenv.errors import ImportFileError
from shioenv.files.events import VisitorLine, typed_lines
from shioenv.grammar.parse import InputParser
from shioenv.sandbox.base import LONGEST_INPUT

MOST_HISTORY: Final = 100
"""Lines before an input at most; ours, because each of them is run for each of its sub-inputs."""

_LEAVES: Final = re.compile(r"\s*(?:exit|logout|exec)\b")


def read_sessions(
    commands: CommandList,
    parser: InputParser,
    directories: Sequence[str],
    exists: Callable[[str], bool] = lambda directory: True,
) -> Accepted:
    """The lines of a log's sessions, each with those before it in its shell as its history.

    A session starts in the first of `directories`. Left out are lines that `import_commands` would
    leave out, and those with more than `MOST_HISTORY` lines before them. So are lines that history
    or completion filled in, and all that follow them in their shell. So is what follows a line
    that leaves its shell. Errors: ImportFileError.
    """
    digest = hashlib.sha256()
    shells: dict[tuple[str, int], _Typed] = {}
    distinct = Distinct()
    samples: list[bytes] = []
    rejected: list[Rejection] = []
    count = 0
    for line in typed_lines(read_lines(commands.path, digest.update)):
        count += 1
        shell = shells.setdefault(line.shell, _Typed())
        reason = shell.refusal(line)
        if reason is None:
            sample, reason = sample_of(parser, line.text, directories[0], tuple(shell.history))
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
        shell.add(line)
    return Accepted(digest.hexdigest(), count, tuple(samples), tuple(rejected))


class _Typed:
    """What was typed in a shell so far."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self._over = ""

    def refusal(self, line: VisitorLine) -> str | None:
        """Why a line is no input; None where it may be one."""
        if self._over:
            return self._over
        if not line.is_known:
            return "history or completion filled it in"
        if len(self.history) > MOST_HISTORY:
            return f"more than {MOST_HISTORY:,} lines before it"
        try:
            content = line.text.encode()
        except UnicodeEncodeError:
            return "half a character: JSON names one of two surrogates"
        return "too long" if len(content) > LONGEST_INPUT else readable(content)[1]

    def add(self, line: VisitorLine) -> None:
        """Puts a line before those that follow."""
        if not line.is_known:
            self._over = "after a line that history or completion filled in"
        elif _LEAVES.match(line.text):
            self._over = "after a line that leaves its shell"
        elif self.refusal(line) is None:
            self.history.append(line.text)
