"""An observer that answers from a table and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shioenv.domain.behavior import Behavior


class ScriptedObserver:
    """Prints what the table holds for a line, else each distinct word of it, fifty times each.

    Every text begins with the session's `cd`, which the table and `calls` leave out.
    """

    def __init__(
        self, table: Mapping[str, Behavior] | None = None, fails: BaseException | None = None
    ) -> None:
        self.table = dict(table or {})
        self.fails = fails
        self.calls: list[tuple[str, str | None, bool]] = []
        self.closed = 0

    def run(
        self,
        shell_input: str,
        *,
        cwd: str | None = None,
        separate: bool = False,
        wall_seconds: float | None = None,
    ) -> Behavior:
        prefix = f"cd {cwd}; "
        assert shell_input.startswith(prefix), shell_input
        text = shell_input.removeprefix(prefix)
        self.calls.append((text, cwd, separate))
        if self.fails is not None:
            raise self.fails
        if text in self.table:
            return self.table[text]
        output = "".join(f"{word * 50}\n" for word in dict.fromkeys(text.split())).encode()
        channels = (output, b"") if separate else (None, None)
        return Behavior(0, output, stdout=channels[0], stderr=channels[1])

    def close(self) -> None:
        self.closed += 1


class Opener:
    """Opens scripted observers and keeps them; picklable as long as none was opened."""

    def __init__(self, make: Callable[[], ScriptedObserver] = ScriptedObserver) -> None:
        self.make = make
        self.opened: list[ScriptedObserver] = []

    def __call__(self) -> ScriptedObserver:
        self.opened.append(self.make())
        return self.opened[-1]
