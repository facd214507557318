"""What every shell does: run line after line, each where the line before it left off."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol, Self

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv.errors import ShellEndedError
from shioenv.sandbox.base import Uncopied

IDLE_SECONDS: Final = 3600.0
"""Seconds for which a shell waits for its next line; ours, because nobody looks longer."""


class Shell(Protocol):
    """A shell that runs lines, each where the line before it left off."""

    @property
    def ended(self) -> bool:
        """Whether the shell has ended: by `exit` or `exec`, by a limit, by a signal."""
        ...

    @property
    def state(self) -> State:
        """The state that the next line starts from. Errors: PatchError where a patch was cut."""
        ...

    def run(self, line: str, *, timeout: float | None = None) -> Behavior:
        """What the shell does with a line; the patch leads from the end of the line before.

        `timeout` are seconds that stand for the limit `wall_seconds`. A line that reaches a limit
        ends the shell. Errors: ShellEndedError where the shell has ended; those of the runner or
        the sandbox.
        """
        ...

    def patch(self) -> ContextPatch:
        """What all lines did together."""
        ...

    def close(self) -> None:
        """Ends the shell, and gives back what it holds; closing twice does nothing."""
        ...


class Closing(Uncopied):
    """What is closed at the end of its `with` block."""

    def close(self) -> None:
        """Gives back what is held; closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def ended(line: str) -> ShellEndedError:
    """The error for a line that comes too late."""
    return ShellEndedError(
        f"the shell has ended: {line!r:.60} cannot be run in it",
        hint="open another one: nothing runs after exit, exec or a limit",
    )


def nothing() -> None:
    """Does nothing: what closing is for a shell that holds nothing."""
