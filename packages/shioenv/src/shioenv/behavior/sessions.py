"""Run the rows of a session in one machine, and inputs in the states that its rows left.

A row must behave like the last row of a `bash -c` that runs all rows up to it. If a row may behave
differently here, no behavior is returned, and the caller repeats the history.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from shioenv.bash.complete import ScriptReader
from shioenv.behavior.line_behaviors import Lines
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Order
from shioenv.errors import SandboxError, ShellEndedError
from shioenv.sandbox.base import LONGEST_INPUT, Execution, Limits

_KILLED: Final = 128 + 9
_KILL_IN_WORDS = re.compile(rb"\bKilled\b|\bsignal 9\b")
_KILL_IN_PIPELINE = re.compile(rb'^declare -a PIPESTATUS=\([^\n]*"137"', re.MULTILINE)


def _word(words: str) -> str:
    """Return a pattern of words that are neither options nor parts of a file's name."""
    return rf"(?<![-.\w])(?:{words})(?![-.\w])"


_SET_ALONE = r"(?<![-.\w])set\s*(?:$|[|;&>)])"
_LISTS = "ps|pgrep|pkill|pidof|pstree|top|lsof|fuser|killall|declare|typeset"

_SHOWS_SHELL: Final = re.compile(
    rf"proc\b|{_word(_LISTS)}|{_SET_ALONE}|{_word('w|compgen|env|printenv|export')}"
    r"|(?i:environ)|%ENV|BASH_|\$\$|\$!|PPID|getpid|BASHPID|SHLVL|LINENO"
)
"""Words of rows that may show the IDs or environment of their shell's processes. A resident shell
(which stays open for further rows) differs in these from `bash -c`, which replaces itself by its
last command. Such rows run as the last row of a copy of their shell."""

_SHOWS_TEXT: Final = re.compile(rf"proc\b|{_word(_LISTS)}|{_SET_ALONE}|BASH_")
"""Words of rows that may show their shell's input. If all rows together are one input, a resident
shell shows only the rows so far."""

_SHOWS_FILE_NUMBERS: Final = re.compile(
    r"\b(?:stat|df|lsof|findmnt|\w*ino)\b|inode|mountinfo|%i|-ls\b|-inum|-printf"
    r"|\b(?:ls|dir|vdir)\b[^|;&]*\s-\w*i"
)
"""Words of inputs that may show numbers of files or of their file system. Copies of layers get
others."""

_SHOWS_TRAFFIC: Final = re.compile(
    r"\b(?:ip|ifconfig|netstat|ss|arp|nstat|route|ethtool|tc|ping|tracepath|traceroute|nft)\b"
    r"|\b(?:proc|sys)\b"
)
"""Words of inputs that may show traces of packets. The new network of a copy has none."""

_SHOWS_CLOCK: Final = re.compile(
    rf"\b(?:uptime|hwclock|now|systime|localtime)\b|{_word('w|time')}|SECONDS|EPOCH|%\("
    r"|\bdate\b(?<!--date)|--date\b(?![= ]['\"]?[@\d])"
)
"""Words of inputs that may show the time: a copy runs later than its row did."""

_SEEDS: Final = re.compile("RANDOM")
"""Words of rows that draw random numbers: a copy of their shell would draw the same numbers
again."""

_SETTINGS: Final = frozenset(
    {"-o verbose", "-o onecmd", "-o noexec", "-o history", "-o monitor", "-o posix"}
)
"""Options with which a shell runs the lines of a script differently from single lines."""

SHOWS_SHELL: Final = "it shows its shell"
SHOWS_CLOCK: Final = "it shows the time"
SHOWS_TRAFFIC: Final = "it shows the network, which an earlier row used"
LEAVES_MORE: Final = "an earlier row left more than files and the shell's state"
SHOWS_NUMBERS: Final = "it shows numbers of files"
DRAWS: Final = "an earlier row used random numbers"
LIMITED: Final = "it may reach a limit of all rows together"


_LEAST_SECONDS: Final = 0.01
"""Seconds of wall time for an input if the rows before it used up the limit."""


class SessionMachine:
    """A resident shell that runs a session's rows, with nodes from which other inputs continue.

    The number of a row counts from 0. Row N runs in the state that the rows before it left. This
    state can be kept as a node (`Lines.mark`).
    """

    def __init__(
        self,
        lines: Lines,
        rows: Sequence[str],
        limits: Limits,
        *,
        separate: bool = False,
        order: Order = "as it comes",
        joint: bool = False,
        nodes: bool = False,
        note: Callable[[float, bool], object] = lambda _seconds, _waited: None,
    ) -> None:
        """`lines` is a new shell. `separate` and `order` are those of `Lines.run`, for the rows.

        With `joint` each behavior is that of a row together with all rows before it, and the last
        row ends the shell. With `nodes` inputs can run in place of rows that ran already. `note`
        gets the seconds of each run, and whether it timed out while it slept.
        """
        self._lines, self._note = lines, note
        self._rows, self._limits = rows, limits
        self._separate, self._order = separate, order
        self._joint, self._eager = joint, nodes
        self.passed: list[Behavior] = []
        """The behavior of each row that ran, as a line of the resident shell."""
        self.why: dict[int, str] = {}
        """The reason why a row has no node before it, or no behavior, by its number."""
        self._ended: str | None = None
        self._nodes: dict[int, int] = {}
        self._renumbered: set[int] = set()
        self._trafficked: set[int] = set()
        self._at = 0  # the row before which the shell waits; -1: it does not wait
        self._outputs: list[bytes] = []  # of the rows in `passed`
        self._began: list[float] = []  # by row: seconds that all rows before it took
        self._over: int | None = None  # the row that ended the shell, after which none runs
        self._after_end = Behavior(0, b"")  # of each row after `_over`
        self._seconds, self._spent = 0.0, 0.0

    def close(self) -> None:
        """End the machine."""
        self._lines.close()

    def row(self, number: int) -> Behavior | None:
        """Return the behavior of a row, None if the history has to be repeated."""
        if self._is_after_end(number):
            return self._at_end()
        if _SHOWS_SHELL.search(self._rows[number]) and not self._is_last(number):
            return self.run(number, self._rows[number], separate=self._separate, order=self._order)
        if not self._run_rows(number + 1) or self._is_shown(number):
            return None
        return self.passed[number]

    def _is_last(self, number: int) -> bool:
        """Whether a row runs as the last one of `bash -c`."""
        return self._joint and number == len(self._rows) - 1

    def joint(self, number: int) -> Behavior | None:
        """Return the joint behavior of the first rows up to this one; None if it is unknown.

        It is known only if the row ran like the last row of an input.
        """
        if self._is_after_end(number):
            return self._at_end()
        if number >= len(self.passed) or self._is_shown(number):
            return None
        behavior = self.passed[number]
        if self._is_last(number) or (
            behavior.shell_state_known and not _SHOWS_SHELL.search(self._rows[number])
        ):
            return behavior
        return None

    def _is_after_end(self, number: int) -> bool:
        """Whether a row before this one ended the shell."""
        if number not in self._nodes and number not in self.why:
            self._run_rows(number)
        return self._over is not None and number > self._over

    def _at_end(self, seconds: float | None = None) -> Behavior | None:
        """Return the behavior of every row after the one that ended the shell.

        None if the text is shown, or if all rows together take more than these seconds.
        """
        assert self._over is not None
        is_too_slow = self._joint and seconds is not None and self._seconds > seconds
        return None if is_too_slow or self._is_shown(self._over + 1) else self._after_end

    def _is_shown(self, number: int) -> bool:
        """Whether behaviors are joint, and a row before this one may show the text of all rows."""
        return self._joint and any(map(_SHOWS_TEXT.search, self._rows[:number]))

    def run(
        self,
        number: int,
        text: str,
        *,
        separate: bool = False,
        order: Order = "as it comes",
        wall_seconds: float | None = None,
    ) -> Behavior | None:
        """Run an input in place of a row, as the last input of its shell.

        None means that the history has to be repeated; `why` has the reason.
        """
        history = self._rows[:number]
        if self._is_after_end(number):
            return self._at_end(wall_seconds)
        if (node := self._node(number)) is None:
            return None
        refusals = (
            (number in self._renumbered and _SHOWS_FILE_NUMBERS.search(text), SHOWS_NUMBERS),
            (number in self._trafficked and _SHOWS_TRAFFIC.search(text), SHOWS_TRAFFIC),
            (self._is_shown(number), SHOWS_SHELL),
            (_SHOWS_CLOCK.search(text), SHOWS_CLOCK),
        )
        for refused, why in refusals:
            if refused:
                self._no(number, why)
                return None
        if _length([*history, text]) > LONGEST_INPUT:
            self._no(number, LIMITED)
            return None
        line, self._at = self._above(number) + text, -1
        how: dict[str, Any] = {"separate": separate, "order": order, "joint": self._joint}
        how["wall_seconds"] = self._left(number, wall_seconds)
        behavior = self._do(lambda: self._lines.run_from(node, line, last=True, **how))
        if behavior is None:
            self._no(number, self._ended or LEAVES_MORE)
            return None
        newest = self._lines.newest
        if self._is_too_long(number, behavior) or newest is None or shows_a_kill(newest):
            self._no(number, LIMITED)
            return None
        return self._joined(number, behavior)

    def _left(self, number: int, seconds: float | None) -> float | None:
        """Return the wall time for an input after the first rows; joint rows share the limit."""
        if not (self._joint and number):
            return seconds
        before = self._began[number] if number < len(self._began) else self._seconds
        return max((seconds or self._limits.wall_seconds) - before, _LEAST_SECONDS)

    def _is_too_long(self, number: int, behavior: Behavior) -> bool:
        """Whether the first `number` rows and this behavior together exceed the output limit."""
        printed = sum(map(len, self._outputs[:number])) + len(behavior.output)
        return printed > self._limits.output_bytes

    def _joined(self, number: int, behavior: Behavior) -> Behavior:
        """Return a behavior; if behaviors are joint, with the outputs of the rows before it."""
        if not (self._joint and number):
            return behavior
        return replace(behavior, output=b"".join((*self._outputs[:number], behavior.output)))

    def _no(self, number: int, why: str) -> None:
        self.why.setdefault(number, why)

    def _node(self, number: int) -> int | None:
        """Return the node before a row, None if there is none."""
        if number in self._nodes:
            return self._nodes[number]
        if number in self.why or not self._run_rows(number):
            return None
        if any(map(_SEEDS.search, self._rows[:number])):
            self._no(number, DRAWS)
            return None
        if self._at != number:
            self._no(number, LEAVES_MORE)
            return None
        try:
            marked = self._lines.mark()
        except (ShellEndedError, SandboxError):
            self._ended = LEAVES_MORE
            self._no(number, LEAVES_MORE)
            return None
        if marked.why is not None:
            self._no(number, marked.why)
            return None
        self._nodes[number] = marked.node
        if marked.traffic or self._trafficked:
            self._trafficked.add(number)
        newest = self._lines.newest
        if marked.frozen or self._renumbered or (newest is not None and newest.changes):
            self._renumbered.add(number)  # a copy numbers new files differently
        if not marked.stays:
            self._at = -1
        return marked.node

    def _run_rows(self, count: int) -> bool:
        """Run those of the first `count` rows that have not run; return whether all have run."""
        while len(self.passed) < count:
            number = len(self.passed)
            if self._ended is not None:
                self.why.setdefault(count, self._ended)
                self.why.setdefault(number, self._ended)
                return False
            if self._eager and number:
                self._node(number)
            behavior = self._row(number)
            if behavior is None:
                self._ended = self._ended or LEAVES_MORE
            else:
                self.passed.append(self._joined(number, behavior))
                self._outputs.append(behavior.output)
        return True

    def _row(self, number: int) -> Behavior | None:
        """Run the next row in the shell if that waits for it, else from the node before the row."""
        row, limits = self._rows[number], self._limits
        if not is_complete(row) or _length(self._rows[: number + 1]) > LONGEST_INPUT:
            return None
        if self._trafficked and _SHOWS_TRAFFIC.search(row):  # the network of a copy is new
            return None
        last = self._is_last(number)
        how: dict[str, Any] = {"separate": self._separate, "order": self._order, "last": last}
        self._began.append(self._seconds)
        how |= {"joint": self._joint, "wall_seconds": self._left(number, None)}
        text, spent = self._above(number) + row, self._spent
        if self._at == number:
            behavior = self._do(lambda: self._lines.run(text, **how))
        elif number in self._nodes:
            node = self._nodes[number]
            behavior = self._do(lambda: self._lines.run_from(node, text, **how))
        else:
            return None
        if behavior is None:
            return None
        self._seconds += self._spent - spent
        self._at = -1 if self._lines.ended else number + 1
        execution = self._lines.newest
        if self._is_too_long(number, behavior):
            self._ended = LIMITED
            return None
        if execution is None or shows_a_kill(execution):
            return None
        if self._lines.ended and not last and not execution.outlived:
            self._over, self._after_end = number, self._ending(number, behavior)
        if not (last or (self._joint and self._over is not None)) and (
            not behavior.shell_state_known
            or (self._seconds > limits.wall_seconds / 2 and not self._joint)
            or _leaves_more(execution, behavior)
        ):
            return None
        if self._lines.ended:
            self._ended = LEAVES_MORE
        return behavior

    def _ending(self, number: int, behavior: Behavior) -> Behavior:
        """Return the behavior of rows after this one, which ended the shell."""
        if self._joint:
            return self._joined(number, behavior)
        nothing = b"" if self._separate else None
        channels: dict[str, Any] = {"stdout": nothing, "stderr": nothing}
        whole, nowhere = self._lines.whole(), ContextPatch(())
        return replace(whole, output=b"", patch=nowhere, content_digests={}, **channels)

    def _do(self, run: Callable[[], Behavior]) -> Behavior | None:
        """Return the behavior of a run, None if its machine is gone."""
        began = time.perf_counter()
        try:
            return run()
        except (ShellEndedError, SandboxError):
            self._ended = LEAVES_MORE
            self._nodes.clear()
            return None
        finally:
            took = time.perf_counter() - began
            self._spent += took
            newest = self._lines.newest
            self._note(took, newest is not None and newest.waited)

    def _above(self, number: int) -> str:
        """Return one newline per line of the rows before a row, to keep line numbers correct."""
        return "\n" * sum(row.count("\n") + 1 for row in self._rows[:number])


def _length(rows: Sequence[str]) -> int:
    """Return the bytes of rows joined to one input, with a newline after each."""
    return sum(len(row.encode("utf-8", "surrogateescape")) + 1 for row in rows)


@lru_cache(maxsize=1024)  # each row is run several times
def is_complete(row: str) -> bool:
    """Whether Bash runs a row of a script before it reads the next row."""
    reader = ScriptReader()
    for line in row.split("\n"):
        reader.add(line)
    return not (reader.begun or reader.refused)


def _leaves_more(execution: Execution, behavior: Behavior) -> bool:
    """Whether a line left state that would not exist if the session were replayed."""
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
    """Whether a path of the context is that of a trap, or of one of `_SETTINGS`."""
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
