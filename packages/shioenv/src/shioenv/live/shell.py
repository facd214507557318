"""The interface of shells: run line after line, each in the state that the previous line left."""

from __future__ import annotations

from typing import Final, Protocol

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv.errors import ShellEndedError

IDLE_SECONDS: Final = 3600.0
"""Seconds for which a shell waits for its next line (our choice: after a longer pause, it counts as
abandoned)."""


class Shell(Protocol):
    """A shell that runs lines, each in the state that the previous line left."""

    @property
    def ended(self) -> bool:
        """Whether the shell has ended: by `exit`, by `exec`, by a limit or by a signal."""
        ...

    @property
    def state(self) -> State:
        """The initial state of the next line. Errors: PatchError if a patch was truncated."""
        ...

    def run(self, line: str, *, timeout: float | None = None) -> Behavior:
        """Run a line and return its behavior; the patch starts at the end of the previous line.

        `timeout`, in seconds, overrides the limit `wall_seconds`. A line that reaches a limit ends
        the shell. Errors: ShellEndedError if the shell has ended; those of the runner or the
        sandbox.
        """
        ...

    def patch(self) -> ContextPatch:
        """Return the combined changes of all lines."""
        ...

    def close(self) -> None:
        """End the shell and release its resources; closing twice does nothing."""
        ...


def ended(line: str) -> ShellEndedError:
    """Return the error for a line that is run after the shell's end."""
    return ShellEndedError(
        f"the shell has ended: {line!r:.60} cannot be run in it",
        hint="open another one: nothing runs after exit, exec or a limit",
    )


def nothing() -> None:
    """Do nothing: the default action on closing."""
