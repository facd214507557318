"""The command line's own part of a shell: lines that no machine answers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from shioenv.cli import shell
from shioenv.domain.behavior import Behavior
from shioenv.errors import Abstained, InputError


class Declining:
    """A shell whose first command raises an error, and that records its input."""

    ended = False

    def __init__(self, error: Exception) -> None:
        self.state: Any = self
        self.before = self
        self.document = {"cwd": "/"}
        self.given: list[str] = []
        self._error = error

    def run(self, command: str) -> Behavior:
        self.given.append(command)
        if len(self.given) == 1:
            raise self._error
        return Behavior(0, b"")


@pytest.mark.parametrize("error", [Abstained("it abstained"), InputError("it is too long")])
def test_a_terminal_goes_on_after_a_refused_command_that_is_not_answered(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter([")\n", "echo next\n", ""])
    monkeypatch.setattr(shell, "_typed", lambda prompt: next(lines))
    declining = Declining(error)
    shell._run_lines(cast("Any", declining), None, at_terminal=True, changes=False)
    assert declining.given == [")", "echo next"]
