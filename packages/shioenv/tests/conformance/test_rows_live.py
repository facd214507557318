"""A row of a session has one patch, whether its shell stayed or its history ran again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State

HOME = "/home/ubuntu"


def live(observer: SandboxRunner, rows: Sequence[str]) -> list[Behavior]:
    lines = observer.start_shell(HOME, idle_seconds=600)
    try:
        return [lines.run("\n" * number + row) for number, row in enumerate(rows)]
    finally:
        lines.close()


def repeated(observer: SandboxRunner, rows: Sequence[str]) -> list[Behavior]:
    states = (State(cwd=HOME, history=tuple(rows[:number])) for number in range(len(rows)))
    return [observer.execute(row, state) for row, state in zip(rows, states, strict=True)]


@pytest.mark.parametrize(
    "rows",
    [
        ("mkdir -p new/inner", "rmdir new/inner", "touch new/f; rm new/f"),
        ("touch documents/x", "rm documents/x", "touch -d 2020-01-01 documents"),
        ("touch documents/x", "touch -d 2020-01-01 documents", "chmod 700 documents"),
        ("touch documents/x; rm documents/x", "touch documents/y", "rm documents/y"),
        ("mkdir new", "touch -d 2020-01-01 new", "touch new/f", "touch -d 2021-01-01 new"),
        ("mkdir new; touch new/f", "mv new other", "mv other/f .", "rmdir other"),
        ("touch f", "mv f documents", "mv documents/f g", "mv g f", "rm f"),
        ("rm -r documents", "mkdir documents", "touch documents/f", "rm -r documents"),
        ("touch README.md", "mv README.md documents", "chmod 600 documents/README.md"),
        ("true", "mkdir new; mv data new", "mv new/data/shared .; rmdir new/data/empty"),
        ("ln README.md l", "rm README.md", "mv l README.md", "chmod 600 README.md"),
        ("cp README.md r", "rm README.md", "cp r README.md", "mv README.md ."),
        ("cd /tmp", "mkdir d", "cd d", "touch ../f", "nothing_of_this_name", "echo $((1 / 0))"),
    ],
)
def test_a_line_changes_the_same_live_and_repeated(
    observer: SandboxRunner, rows: tuple[str, ...]
) -> None:
    for number, pair in enumerate(
        zip(live(observer, rows), repeated(observer, rows), strict=True), 1
    ):
        assert pair[0] == pair[1], f"row {number}: {rows[number - 1]}"
