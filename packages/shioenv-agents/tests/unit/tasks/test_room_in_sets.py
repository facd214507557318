"""Drafts that a set accepts: by length, by command, and without duplicates."""

from __future__ import annotations

from collections import Counter

from shioenv_agents.tasks.sets import SetPlan, _Gathered
from shioenv_agents.tasks.task import LENGTHS, Goal, Task, length_of

LENGTH = "its length has enough tasks"
COMMAND = "its command has enough tasks"
ASKED = "it is a duplicate"


def task(prompt: str, solution: str = "rm x", history: tuple[str, ...] = ()) -> Task:
    return Task(
        id="1", prompt=prompt, cwd="/home/ubuntu", goal=Goal(patch=[["r", "/fs/x"]]),
        history=[*history], solution=solution, reduced="",
        commands=[line.split()[0] for line in solution.split("\n")], irreducibility=1.0,
        n_arguments=1, record=1, system="debian-12", system_digest="",
    )  # fmt: skip


def chosen(gathered: _Gathered, *drafts: Task) -> tuple[list[str], dict[str, int]]:
    """Return the prompts of the accepted drafts, and the reasons for the others."""
    refused: Counter[str] = Counter()
    taken = gathered.chosen((("train", one) for one in drafts), refused)
    return [one.prompt for _, one in taken], dict(refused)


def test_a_command_has_its_share() -> None:
    gathered = _Gathered(SetPlan(count=30, share=0.2))  # 10 of a length, 2 of a command
    drafts = [task(f"{n}", "rm x") for n in range(4)]
    others = [task(f"other {n}", f"{name} x") for n, name in enumerate(("mv", "cp"))]
    assert chosen(gathered, *drafts, *others) == (["0", "1", "other 0", "other 1"], {COMMAND: 2})
    gathered.add("test", drafts[0])
    assert chosen(gathered, *drafts[1:]) == (["1"], {COMMAND: 2})


def test_longer_tasks_have_three_shares_and_a_broken_machine_the_command_that_broke_it() -> None:
    plan = SetPlan(count=30, share=0.1)  # 1 of a command in one line, 3 in longer tasks
    several = [task(f"{n}", "mv x y\nrm y") for n in range(4)]
    broken = [task(f"b{n}", "rm y", ("chmod 0 x",)) for n in range(4)]
    assert [length_of(one) for one in (task("a"), several[0], broken[0])] == [*LENGTHS]
    taken, refused = chosen(_Gathered(plan), task("a"), task("b"), *several, *broken)
    assert taken == ["a", "0", "1", "2", "b0", "b1", "b2"]
    assert refused == {COMMAND: 3}


def test_what_was_asked_is_not_asked_again() -> None:
    gathered = _Gathered(SetPlan(count=30, share=1.0))
    gathered.add("train", task("known"))
    again = task("new", "unlink x")  # another solution asks the same
    assert chosen(gathered, task("known"), task("new"), again) == (["new"], {ASKED: 2})
    assert chosen(gathered, task("known", history=("rm x",))) == (["known"], {})


def test_a_length_that_is_full_takes_no_more() -> None:
    gathered = _Gathered(SetPlan(count=4, share=1.0))  # 2 of one line, 1 of each other length
    gathered.add("validation", task("a"))
    drafts = [task("b"), task("c"), task("d", "mv x y\nrm y"), task("e", "mv x y\nrm y")]
    assert chosen(gathered, *drafts) == (["b", "d"], {LENGTH: 2})
    assert (gathered.left(LENGTHS[0]), len(gathered.tasks)) == (1, 1)
