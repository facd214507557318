"""Rows answered from passes: which run takes which pass, and what is repeated."""

from __future__ import annotations

from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.recording.passes import Pass, SessionPasses

ROWS = ("one", "two", "three")


class Rows:
    """A session's machine with these behaviors of rows; other inputs are named in brackets."""

    def __init__(self, answers: Pass) -> None:
        self.answers, self.closed = answers, False
        self.passed = [answer for answer in answers if answer is not None]
        self.why = {n: "why" for n, answer in enumerate(answers) if answer is None}
        self.runs: list[tuple[int, str, dict[str, Any]]] = []

    def row(self, number: int) -> Behavior | None:
        return self.answers[number]

    def run(self, number: int, text: str, **how: Any) -> Behavior | None:
        self.runs.append((number, text, how))
        return None if self.answers[number] is None else Behavior(0, f"[{text}]".encode())

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class Machine:
    """Repeats inputs and runs passes; each output names what ran, and how often before."""

    seconds, waited = 0.0, False

    def __init__(self, *, missing: int | None = None, random: int | None = None) -> None:
        self.missing, self.random = missing, random
        self.passes: list[dict[str, Any]] = []
        self.executed: list[tuple[str, State | None, dict[str, Any]]] = []
        self.opened: list[Rows] = []

    def open_session(self, rows: tuple[str, ...], **how: Any) -> Rows:
        self.passes.append(how)
        answers: Pass = [Behavior(0, f"<{row}>".encode()) for row in rows]
        if self.random is not None:
            answers[self.random] = Behavior(0, str(len(self.passes)).encode())
        if self.missing is not None:
            answers[self.missing :] = [None] * (len(rows) - self.missing)
        self.opened.append(Rows(answers))
        return self.opened[-1]

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
    passes = SessionPasses(machine, ROWS, machine.open_session)
    for number in (1, 2):
        for _ in range(2):
            assert (
                passes.execute(ROWS[number], after(number)).output == f"<{ROWS[number]}>".encode()
            )
        passes.execute(ROWS[number], after(number), separate=True)
        passes.execute(ROWS[number], after(number), order="lazy")
    assert [(how["separate"], how["order"]) for how in machine.passes] == [
        (False, "as it comes"), (True, "as it comes"), (False, "as it comes"), (False, "lazy"),
    ]  # fmt: skip
    assert not machine.executed
    passes.close()


class Noisy(Machine):
    """Its second row writes to both pipes."""

    def open_session(self, rows: tuple[str, ...], **how: Any) -> Rows:
        opened = super().open_session(rows, **how)
        if how["separate"]:
            opened.answers[1] = Behavior(0, b"<two>", stdout=b"<tw", stderr=b"o>")
        return opened


@pytest.mark.parametrize(
    ("rows", "order"), [(ROWS, "as it comes"), (("a | b", *ROWS[1:]), "eager")]
)
def test_a_row_that_wrote_to_both_pipes_runs_in_another_pass(
    rows: tuple[str, ...], order: str
) -> None:
    machine = Noisy()
    passes = SessionPasses(machine, rows, machine.open_session)
    for number, row in enumerate(rows):
        for separate in (False, True, False):
            state = State(cwd="/", history=rows[:number])
            assert passes.execute(row, state, separate=separate).output
    assert [(how["separate"], how["order"]) for how in machine.passes][:3] == [
        (False, "as it comes"), (True, "as it comes"), (False, order),
    ]  # fmt: skip
    assert len(machine.passes) == (3 if order == "eager" else 4), "the last row once more"


def test_parts_limited_runs_and_other_histories_are_executed() -> None:
    machine = Machine()
    passes = SessionPasses(machine, ROWS, machine.open_session)
    passes.execute("part", after(2))
    passes.execute("three", after(2), wall_seconds=1.0)
    passes.execute("three", State(cwd="/", history=("other", "two")))
    assert [text for text, _, _ in machine.executed] == ["part", "three", "three"]
    assert not machine.passes
    assert not passes.repeated


def test_rows_that_no_pass_carries_are_repeated_and_counted() -> None:
    machine = Machine(missing=2)
    passes = SessionPasses(machine, ROWS, machine.open_session)
    passes.execute("two", after(1))
    passes.execute("three", after(2))
    passes.execute("three", after(2), separate=True)
    assert [(text, how) for text, _, how in machine.executed] == [
        ("three", {}), ("three", {"separate": True}),
    ]  # fmt: skip
    assert len(machine.passes) == 2, "no pass with channels for a row that none carries"
    assert passes.repeated == {2: "why"}


def test_rows_after_one_that_differs_between_passes_are_volatile() -> None:
    machine = Machine(random=1)
    passes = SessionPasses(machine, ROWS, machine.open_session)
    assert not passes.execute("two", after(1)).volatile  # its own runs show that
    assert passes.execute("three", after(2)).volatile


def test_lines_after_a_row_run_once_with_its_history() -> None:
    machine = Machine()
    passes = SessionPasses(machine, ROWS, machine.open_session)
    passes.execute("three", after(2))
    assert passes.execute("three\ncat f", after(2)).output == b"<three><cat f>"
    passes.execute("threefold", after(2))
    (text, state, _), (_, history, _) = machine.executed
    assert history == after(2), "another input"
    assert (text, state) == ("one\ntwo\nthree\ncat f", State(cwd="/"))


def test_lines_after_a_row_run_apart_where_its_history_printed_something_else() -> None:
    machine = Machine(random=0)
    passes = SessionPasses(machine, ROWS, machine.open_session)
    passes.execute("three", after(2))
    passes.execute("three\ncat f", after(2))
    assert [text for text, _, _ in machine.executed] == [
        "one\ntwo\nthree\ncat f", "three\ncat f",
    ]  # fmt: skip


def test_with_forks_one_machine_runs_all_but_the_second_run_of_a_row() -> None:
    machine = Machine()
    passes = SessionPasses(machine, ROWS, machine.open_session, forks=True)
    how: dict[str, Any] = {"separate": False, "order": "as it comes"}
    outputs = [passes.execute("two", after(1)).output for _ in range(3)]
    assert outputs == [b"[two]", b"<two>", b"[two]"]
    assert passes.execute("part", after(2), wall_seconds=1.0).output == b"[part]"
    assert passes.execute("three\ncat f", after(2)).output == b"[three\ncat f]"
    kept, second = machine.opened
    assert second.closed
    assert not kept.closed
    assert kept.runs == [
        (1, "two", how), (1, "two", how), (2, "part", {**how, "wall_seconds": 1.0}),
        (2, "three\ncat f", how),
    ]  # fmt: skip
    passes.execute("one", after(0))
    passes.execute("two", after(1), tty=True)
    assert [text for text, _, _ in machine.executed] == ["one", "two"]
    passes.close()
    assert kept.closed


def test_with_forks_inputs_after_unsteady_rows_are_volatile_and_unknown_ones_are_repeated() -> None:
    machine = Machine(random=1, missing=2)
    passes = SessionPasses(machine, ROWS, machine.open_session, forks=True)
    assert not passes.execute("part", after(1)).volatile
    assert passes.execute("part", after(2)).output == b"<part>"
    assert passes.repeated == {2: "why"}
    machine = Machine(random=1)
    passes = SessionPasses(machine, ROWS, machine.open_session, forks=True)
    assert passes.execute("part", after(2)).volatile
