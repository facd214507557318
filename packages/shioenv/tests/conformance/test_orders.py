"""The two extreme orders of a run's processes, and the races that they reveal."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Session
from shioenv.domain.runner import Order
from shioenv.irreducibility.scoring import UNSCORED
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import LIMITS, Limits
from shioenv.system.store import System

TIMES = 3


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system, LIMITS) as opened:
        yield opened


def done(sandbox: SandboxRunner, text: str, order: Order) -> Behavior:
    """Return the input's results in this order, one of each run."""
    behaviors = [sandbox.execute(text, sandbox.state("/home"), order=order) for _ in range(TIMES)]
    assert all(other == behaviors[0] for other in behaviors), text
    return behaviors[0]


RACES = {
    "echo 1 & echo 2; wait": (b"1\n2\n", b"2\n1\n"),
    "{ echo 1 >&2; } | echo 2": (b"1\n2\n", b"2\n1\n"),
    "echo 1 >&2 | echo 2 >&2 | echo 3": (b"1\n2\n3\n", b"3\n2\n1\n"),
    "{ (echo 1 | :) & } 2> /dev/null; echo 2 | { echo 3; cat; } ; wait": (b"3\n2\n",) * 2,
    "trap '' PIPE; /bin/echo x | true; echo ${PIPESTATUS[0]}": (
        b"0\n",
        b"/bin/echo: write error: Broken pipe\n1\n",
    ),
    "/bin/echo x > x | cat x": (b"x\n", b"cat: x: No such file or directory\n"),
    "cat x <(/bin/echo y > x)": (b"y\n", b"cat: x: No such file or directory\n"),
    "(echo 1; sleep 0.01; echo 2) | cat": (b"1\n2\n",) * 2,
    "sleep 0.05 & kill $!; wait $! 2> /dev/null; echo $?": (b"143\n",) * 2,
    "yes | head -n 1": (b"y\n",) * 2,
    "coproc cat; echo 1 >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x": (b"1\n",) * 2,
    "echo $(echo 1; echo 2 | cat)": (b"1 2\n",) * 2,
}


@pytest.mark.parametrize("text", RACES)
def test_each_order_does_the_same_each_time(sandbox: SandboxRunner, text: str) -> None:
    eager, lazy = RACES[text]
    assert done(sandbox, text, "eager").output == eager
    assert done(sandbox, text, "lazy").output == lazy


@pytest.mark.parametrize("order", ["eager", "lazy"])
def test_nobody_is_held_for_long(system: System, order: Order) -> None:
    with open_sandbox(system, Limits(wall_seconds=20.0)) as patient:
        many = "for i in {1..150}; do /bin/true | /bin/true; done; echo end"
        assert patient.execute(many, patient.state("/home"), order=order).output == b"end\n"
        busy = "while ((SECONDS < 1)); do :; done | echo 1; echo 2"
        assert patient.execute(busy, patient.state("/home"), order=order).output == b"1\n2\n"


def test_who_is_held_loses_no_time(system: System) -> None:
    with open_sandbox(system, Limits(wall_seconds=0.4)) as hasty:
        busy = "for ((i = 0; i < 20000; i++)); do :; done & wait; echo end"
        assert hasty.execute(busy, hasty.state("/home"), order="eager").output == b"end\n"


def test_orders_are_not_seen_by_the_input(sandbox: SandboxRunner) -> None:
    text = "echo $$ $BASHPID $(echo $BASHPID); env | sort; ls /proc/self/fd | cat; wait; ulimit -a"
    plain = done(sandbox, text, "as it comes")
    assert done(sandbox, text, "eager") == plain
    assert done(sandbox, text, "lazy") == plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("xargs -l1 echo | grep -q root /etc/passwd", True),
        ("/bin/echo x | tee y | cat y", True),
        ("ls /etc | sort -r | head -n 3", False),
        ("ls nowhere /etc/passwd | wc -l", False),
        ("sort /etc/passwd | uniq -c | sort -rn | tail -n 1", False),
        ("tar -cjf ubuntu/ -C nowhere .", True),
        ("tar -czvf ubuntu /etc/passwd", True),
        ("tar -I false -cf made.tar ubuntu/README.md", True),
        ("tar -xzf nothing.tgz", False),
        ("tar -xjf ubuntu/README.md nothing", False),
    ],
)
def test_a_flag_is_the_same_each_time(sandbox: SandboxRunner, text: str, expected: bool) -> None:
    session = Session("/home", (Input.from_marked(text.split(" ")),))
    for seed in range(TIMES):
        recorded = SessionRecorder(scoring=UNSCORED).record(session, sandbox, random.Random(seed))
        assert recorded.behavior.volatile is expected


@pytest.mark.parametrize("text", ["echo $RANDOM", "ping -c 1 -W 1 ::1 >&2", "echo $RANDOM >&2; ls"])
def test_a_volatile_record_is_all_of_one_run(sandbox: SandboxRunner, text: str) -> None:
    session = Session("/home", (Input.from_marked(text.split(" ")),))
    recorded = SessionRecorder(scoring=UNSCORED).record(session, sandbox, random.Random(0))
    behavior = recorded.behavior
    assert behavior.volatile
    if behavior.stdout is not None and behavior.stderr is not None:
        assert behavior.stdout + behavior.stderr == behavior.output
