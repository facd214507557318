"""Run the rows of a session one after the other in one resident shell.

The oracle is repetition: `bash -c` runs the rows before it and the row, and what the former did is
removed. A row for which the resident shell may differ has no behavior here. Its caller repeats the
history.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from shioenv.bash.complete import ScriptReader
from shioenv.behavior.line_behaviors import Lines
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Order
from shioenv.errors import SandboxError, ShellEndedError
from shioenv.sandbox.base import LONGEST_INPUT, Execution, Limits

_KILLED: Final = 128 + 9
_KILL_IN_WORDS = re.compile(rb"\bKilled\b|\bsignal 9\b")
_KILL_IN_PIPELINE = re.compile(rb'^declare -a PIPESTATUS=\([^\n]*"137"', re.MULTILINE)

_SHOWS_SHELL: Final = re.compile(
    r"proc\b|\b(?:ps|pgrep|pkill|pidof|pstree|top|lsof|fuser|w|killall)\b"
    r"|\b(?:set|declare|typeset|compgen|env|printenv|export)\b|(?i:environ)|%ENV|BASH_|\$\$|\$!|PPID|getpid|BASHPID|SHLVL|LINENO"
)
"""Words of rows that may show the numbers, arguments or environment of their shell's processes.

There a resident shell differs from `bash -c`. Its arguments lack the rows. A row's last command is
a separate process, whose `SHLVL` is not lowered."""

_SETTINGS: Final = frozenset(
    {"-o verbose", "-o onecmd", "-o noexec", "-o history", "-o monitor", "-o posix"}
)
"""Options with which a shell reads the lines of a script otherwise than single lines."""


def run_session(
    lines: Lines,
    rows: Sequence[str],
    limits: Limits,
    *,
    separate: bool = False,
    order: Order = "as it comes",
) -> list[Behavior | None]:
    """Run a session's rows in a new resident shell, and return the behavior of each.

    None stands for a row that has to be repeated. One kind shows its shell (`_SHOWS_SHELL`). Other
    rows leave state that a replay lacks, such as a process, a trap or a reached limit. These are
    repeated with all rows after them, as are all rows after the shell's end.
    """
    behaviors = list(_behaviors(lines, rows, limits, separate=separate, order=order))
    return [*behaviors, *[None] * (len(rows) - len(behaviors))]


def _behaviors(
    lines: Lines, rows: Sequence[str], limits: Limits, *, separate: bool, order: Order
) -> Iterator[Behavior | None]:
    above = printed = length = 0
    for row in rows:
        length += len(row.encode("utf-8", "surrogateescape")) + 1
        if not is_complete(row) or length > LONGEST_INPUT:
            return
        try:
            behavior = lines.run("\n" * above + row, separate=separate, order=order)
        except (ShellEndedError, SandboxError):
            return
        above += row.count("\n") + 1
        printed += len(behavior.output)
        execution = lines.newest
        if (
            execution is None
            or not behavior.shell_state_known
            or printed > limits.output_bytes
            or lines.seconds > limits.wall_seconds / 2
            or shows_a_kill(execution)
            or _leaves_more(execution, behavior)
        ):
            return
        yield None if _SHOWS_SHELL.search(row) else behavior
        if lines.ended:
            return


@lru_cache(maxsize=1024)  # each row is run several times
def is_complete(row: str) -> bool:
    """Whether Bash runs a row of a script before it reads the row after it."""
    reader = ScriptReader()
    for line in row.split("\n"):
        reader.add(line)
    return not (reader.begun or reader.refused)


def _leaves_more(execution: Execution, behavior: Behavior) -> bool:
    """Whether a line left state that a replay of its session lacks."""
    return (
        execution.outlived
        or bool(behavior.limits_hit)
        or behavior.timed_out
        or behavior.died_by_signal is not None
        or behavior.patch_truncated
        or execution.network is not None
        or execution.hostname is not None
        or (behavior.exit_code == 2 and b": syntax error" in behavior.output)
        or any(_is_of_reading(operation[1]) for operation in behavior.patch.operations)
    )


def _is_of_reading(path: str) -> bool:
    """Whether a change at a path of the context is one of traps, or of `_SETTINGS`."""
    area, _, name = path[1:].partition("/")
    return area == "settings" and (name.startswith("trap ") or name in _SETTINGS)


def shows_a_kill(execution: Execution) -> bool:
    """Whether a program of the run was probably killed, and not by a limit.

    The evidence is the exit code, the exit codes of the last pipeline, and words in the output. The
    host may have killed the program (its out-of-memory killer, a `pkill`). An input that kills a
    program itself does so in every run.
    """
    if execution.limits_hit:
        return False
    output, shell = execution.output, execution.shell or b""
    # checked for every run: finding plain text is ten times as fast as a pattern
    in_words = b"Killed" in output or b"signal 9" in output
    return (
        execution.exit_code == _KILLED
        or (in_words and _KILL_IN_WORDS.search(output) is not None)
        or (b'"137"' in shell and _KILL_IN_PIPELINE.search(shell) is not None)
    )
