"""Rows answered from passes: which run takes which pass, and what is repeated."""

from __future__ import annotations

from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.recording.passes import Pass, SessionPasses

ROWS = ("one", "two", "three")


class Machine:
    """Repeats inputs and runs passes; each output names what ran, and how often before."""

    seconds, waited = 0.0, False

    def __init__(self, *, missing: int | None = None, random: int | None = None) -> None:
        self.missing, self.random = missing, random
        self.passes: list[dict[str, Any]] = []
        self.executed: list[tuple[str, State | None, dict[str, Any]]] = []

    def run_rows(self, rows: tuple[str, ...], **how: Any) -> Pass:
        self.passes.append(how)
        answers: Pass = [Behavior(0, f"<{row}>".encode()) for row in rows]
        if self.random is not None:
            answers[self.random] = Behavior(0, str(len(self.passes)).encode())
        if self.missing is not None:
            answers[self.missing :] = [None] * (len(rows) - self.missing)
        return answers

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        return self.execute(shell_input, state)

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        self.executed.append((shell_input, state, how))
        return Behavior(0, "".join(f"<{row}>" for row in shell_input.split("\n")).encode())

    def close(self) -> None:
        raise AssertionError("the machine is another's")


def after(number: int) -> State:
    return State(cwd="/", history=ROWS[:number])


def test_each_run_of_a_row_is_of_another_pass_and_a_pass_serves_every_row() -> None:
    machine = Machine()
    passes = SessionPasses(machine, ROWS, machine.run_rows)
    for number in (1, 2):
        for _ in range(2):
            assert (
                passes.execute(ROWS[number], after(number)).output == f"<{ROWS[number]}>".encode()
            )
        passes.execute(ROWS[number], after(number), separate=True)
        passes.execute(ROWS[number], after(number), order="lazy")
    assert [(how["separate"], how["order"]) for how in machine.passes] == [
        (False, "as it comes"), (False, "as it comes"), (True, "as it comes"), (False, "lazy"),
    ]  # fmt: skip
    assert not machine.executed
    passes.close()


def test_first_rows_parts_and_limited_runs_are_executed() -> None:
    machine = Machine()
    passes = SessionPasses(machine, ROWS, machine.run_rows)
    passes.execute("one", after(0))
    passes.execute("part", after(2))
    passes.execute("three", after(2), wall_seconds=1.0)
    passes.execute("three", State(cwd="/", history=("other", "two")))
    assert [text for text, _, _ in machine.executed] == ["one", "part", "three", "three"]
    assert not machine.passes
    assert not passes.repeated


def test_rows_that_no_pass_carries_are_repeated_and_counted() -> None:
    machine = Machine(missing=2)
    passes = SessionPasses(machine, ROWS, machine.run_rows)
    passes.execute("two", after(1))
    passes.execute("three", after(2))
    passes.execute("three", after(2), separate=True)
    assert [(text, how) for text, _, how in machine.executed] == [
        ("three", {}), ("three", {"separate": True}),
    ]  # fmt: skip
    assert len(machine.passes) == 2, "no pass with channels for a row that none carries"
    assert passes.repeated == {2}


def test_rows_after_one_that_differs_between_passes_are_volatile() -> None:
    machine = Machine(random=1)
    passes = SessionPasses(machine, ROWS, machine.run_rows)
    assert not passes.execute("two", after(1)).volatile  # its own runs show that
    assert passes.execute("three", after(2)).volatile


def test_lines_after_a_row_run_once_with_its_history() -> None:
    machine = Machine()
    passes = SessionPasses(machine, ROWS, machine.run_rows)
    passes.execute("three", after(2))
    assert passes.execute("three\ncat f", after(2)).output == b"<three><cat f>"
    passes.execute("threefold", after(2))
    (text, state, _), (_, history, _) = machine.executed
    assert history == after(2), "another input"
    assert (text, state) == ("one\ntwo\nthree\ncat f", State(cwd="/"))


def test_lines_after_a_row_run_apart_where_its_history_printed_something_else() -> None:
    machine = Machine(random=0)
    passes = SessionPasses(machine, ROWS, machine.run_rows)
    passes.execute("three", after(2))
    passes.execute("three\ncat f", after(2))
    assert [text for text, _, _ in machine.executed] == [
        "one\ntwo\nthree\ncat f", "three\ncat f",
    ]  # fmt: skip
