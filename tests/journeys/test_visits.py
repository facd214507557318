"""The choice of a conversation's shell, on real machines: visitors never see each other's state."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import msgspec
import pytest

from shioenv.errors import (
    ConversationTooLongError,
    InputError,
    LimitsError,
    OverloadedError,
    SandboxError,
)
from shioenv.live.shells import Shells
from shioenv_serve import visits as module
from shioenv_serve.conversations import ChatRequest, conversation_of
from shioenv_serve.ssh.server import ServerBounds
from shioenv_serve.visits import Answered, Visits
from support.cowrie_history import History, executed
from support.fronts_tasks import sandboxes
from support.waiting import next_turn

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.xdist_group("visits")]

T = TypeVar("T")
SAME = ["true", "cd /tmp", "pwd", "cd", "pwd", "true", "cd /", "pwd", "true", "true"]
"""After these lines, Cowrie's window of messages has no trace of the lines before."""


class Site:
    """Visits, and an event loop that calls them as Cowrie does."""

    def __init__(self, loop: asyncio.Runner, most: int) -> None:
        self._loop = loop
        self.visits = Visits(Shells(), most, 900.0)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    async def ask(self, messages: list[dict[str, Any]], caller: str = "") -> Answered:
        request = msgspec.convert({"model": "sandbox", "messages": messages}, ChatRequest)
        return await self.visits.answer(conversation_of(request, caller))

    async def type(self, history: History, *lines: str) -> list[str]:
        shown = []
        for line in lines:
            told = await self.ask(history.messages(line))
            history.answered(told.text)
            shown.append(told.text)
        return shown

    def typed(self, history: History, *lines: str) -> list[str]:
        return self.run(self.type(history, *lines))


@contextmanager
def opened(most: int = 16) -> Iterator[Site]:
    before = sandboxes()
    with asyncio.Runner() as loop:
        site = Site(loop, most)
        try:
            loop.run(site.visits.start())
            yield site
        finally:
            loop.run(site.visits.close())
    assert sandboxes() <= before  # one of an earlier test may have ended meanwhile


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with opened() as made:
        yield made


@pytest.fixture
def history(request: pytest.FixtureRequest) -> History:
    """A visitor that only this test knows; all others have another key."""
    return History(system=f"{request.node.name}.")


def test_a_conversation_goes_on_in_one_shell(site: Site, history: History) -> None:
    lines = ["cd /tmp", "x=5", "touch made", "", "echo $x; pwd; ls made"]
    assert site.typed(history, *lines) == ["", "", "", "", "5\n/tmp\nmade\n"]


def test_a_window_of_ten_messages_goes_on_too(site: Site, history: History) -> None:
    assert site.typed(history, "secret=abc", *SAME, *SAME, "echo $secret")[-1] == "abc\n"


def test_what_honeypots_do_to_answers_is_known(site: Site, history: History) -> None:
    odd = ["echo '`a`'", "printf '  b\\n\\n'", "echo '```sh'", "printf '\\377\\n'", "printf '\\n'"]
    site.typed(history, "x=1", *odd)
    told = site.run(site.ask(history.messages("echo $x")))
    assert (told.text, told.again) == ("1\n", 0)


def test_equal_beginnings_are_two_machines(site: Site, history: History) -> None:
    one, other = history, History(system=history.system)
    for line in ("cd /tmp", "mkdir d", "cd d"):
        site.typed(one, line)
        site.typed(other, line)
    site.typed(one, "touch ones")
    site.typed(other, "touch others")
    assert site.typed(one, "ls") == ["ones\n"]
    assert site.typed(other, "ls") == ["others\n"]


def test_who_comes_later_is_not_given_what_went_on(site: Site, history: History) -> None:
    """The shell that ran one line more serves that visitor alone: the lines are run again."""
    late = History(system=history.system)
    site.typed(history, "cd /tmp", "echo mine > f", "cd /tmp")
    late.messages("cd /tmp")
    told = site.run(site.ask(late.messages("ls -A")))
    assert (told.text, told.again) == ("", 1)
    assert site.typed(history, "cat f") == ["mine\n"]


def test_visitors_whom_a_window_does_not_tell_apart_get_nothing_of_each_other(
    site: Site, history: History
) -> None:
    one, other = history, History(system=history.system)
    site.typed(one, "secret=ones", *SAME)
    site.typed(other, "secret=others", *SAME)
    for visitor, foreign in ((one, "others"), (other, "ones")):
        assert foreign not in site.typed(visitor, "echo $secret")[0]


def test_visitors_with_other_windows_are_told_apart(site: Site, history: History) -> None:
    one, other = history, History(system=history.system)
    site.typed(one, "secret=ones", *SAME, "echo a")
    site.typed(other, "secret=others", *SAME, "echo b")
    assert site.typed(one, "echo $secret") == ["ones\n"]
    assert site.typed(other, "echo $secret") == ["others\n"]


def test_an_answer_tells_visitors_apart(site: Site, history: History) -> None:
    """The lines are the same, and their output is not."""
    visitors = [History(system=history.system) for _ in range(3)]
    shown = [site.typed(visitor, "x=$SRANDOM; echo $x")[0] for visitor in visitors]
    assert len(set(shown)) == 3
    assert [site.typed(visitor, "echo $x")[0] for visitor in reversed(visitors)] == shown[::-1]


def test_a_line_that_is_typed_ahead_stays_with_its_visitor(site: Site, history: History) -> None:
    """Another visitor typed the same line, and already has the answer."""
    site.typed(History(system=history.system), "x=$SRANDOM; echo $x")

    async def ahead() -> list[Answered]:
        asked = [history.messages(line) for line in ("x=$SRANDOM; echo $x", "echo $x")]
        return await asyncio.gather(*map(site.ask, asked))

    first, second = site.run(ahead())
    assert first.text == second.text


def test_another_caller_is_another_visitor(site: Site, history: History) -> None:
    site.run(site.ask(history.messages("x=1"), "one"))
    assert site.run(site.ask(history.messages("echo $x"), "one")).text == "1\n"
    again = site.run(site.ask(history.messages("echo $x"), "other"))
    assert again.again == 2


def test_lines_that_are_pasted_run_in_their_order(site: Site, history: History) -> None:
    """Cowrie sends each at once, without the pending answers."""
    lines = ["cd /tmp", "y=1", "for i in 2 3; do y=$y$i; done", "echo $y", "pwd"]

    async def paste() -> list[Answered]:
        asked = [history.messages(line) for line in lines]
        return await asyncio.gather(*map(site.ask, asked))

    told = site.run(paste())
    assert [each.text for each in told] == ["", "", "", "123\n", "/tmp\n"]
    assert len({each.visit for each in told}) == 1


def test_requests_that_overtake_each_other_meet_in_one_shell(site: Site, history: History) -> None:
    async def overtaken() -> tuple[Answered, Answered]:
        first, second = history.messages("x=7"), history.messages("echo $x")
        later = asyncio.create_task(site.ask(second))
        await next_turn()  # it looks for its visit, and there is none yet
        return await site.ask(first), await later

    one, other = site.run(overtaken())
    assert (other.text, other.visit, other.again) == ("7\n", one.visit, 0)


def test_an_unknown_conversation_is_run_again(site: Site, history: History) -> None:
    """For example after a restart, or with Beelzebub, which begins with an invented exchange."""
    told = [("user", "pwd"), ("assistant", "/home/user"), ("user", "cd /var"), ("user", "pwd")]
    messages = [{"role": role, "content": text} for role, text in told]
    first = site.run(site.ask([{"role": "system", "content": history.system}, *messages]))
    assert (first.text, first.again) == ("/var\n", 2)
    messages += [
        {"role": "assistant", "content": "/var\n"},
        {"role": "user", "content": "cd ..; pwd"},
    ]
    second = site.run(site.ask([{"role": "system", "content": history.system}, *messages]))
    assert (second.text, second.again, second.visit) == ("/\n", 0, first.visit)


@pytest.mark.parametrize("end", ["exit", "exec true", "kill -9 $$"])
def test_what_ends_a_shell_is_not_run_again(site: Site, history: History, end: str) -> None:
    site.typed(history, "x=5; cd /tmp", end)
    told = site.run(site.ask(history.messages("echo $x; pwd")))
    assert (told.text, told.again) == ("5\n/tmp\n", 1)


def test_a_line_that_no_shell_can_be_given_is_an_error(site: Site, history: History) -> None:
    site.typed(history, "x=5")
    for line in ("a\0b", "x" * 200_000):
        with pytest.raises(InputError):
            site.run(site.ask(history.messages(line)))
    assert site.typed(history, "echo $x") == ["5\n"]


def test_a_command_without_terminal_leaves_nothing(site: Site) -> None:
    before = site.visits.kept
    told = site.run(site.ask(executed("echo a > f; cat f; false")))
    assert told.text == "a\n"
    assert told.behavior is not None
    assert told.behavior.exit_code == 1
    assert site.run(site.ask(executed("ls f"))).text.endswith("No such file or directory\n")
    assert site.visits.kept <= before


def test_the_mark_in_a_command_is_the_commands(site: Site) -> None:
    assert site.run(site.ask(executed('echo "\'. The command to execute is: x"'))).text == (
        "'. The command to execute is: x\n"
    )


def test_many_at_once_see_their_own_alone(site: Site, history: History) -> None:
    async def visit(number: int) -> list[str]:
        visitor = History(system=history.system)
        lines = ["cd /tmp", f"echo sentinel{number} >> f", "true", "cat f", "ls -A | wc -l"]
        return (await site.type(visitor, *lines))[3:]

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*map(visit, range(12)))

    assert site.run(all_of_them()) == [[f"sentinel{n}\n", "1\n"] for n in range(12)]


def test_the_shell_that_waited_longest_makes_room(history: History) -> None:
    with opened(most=2) as site:
        visitors = [History(system=f"{history.system}{number}") for number in range(3)]
        for number, visitor in enumerate(visitors):
            site.typed(visitor, f"x={number}")
        assert site.visits.kept == 2
        for number, visitor in itertools.chain(enumerate(visitors), enumerate(visitors)):
            told = site.run(site.ask(visitor.messages("echo $x")))
            visitor.answered(told.text)
            assert told.text == f"{number}\n"
            assert told.again > 0
        # a window alone is not enough: the lines before it are remembered
        site.typed(visitors[0], *SAME)
        site.typed(visitors[1], "true")
        site.typed(visitors[2], "true")
        assert site.typed(visitors[0], "echo $x") == ["0\n"]


def test_one_too_many_waits_and_is_refused_in_the_end(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(most=1) as site:

        async def two() -> list[str]:
            busy = asyncio.create_task(site.ask(history.messages("sleep 0.2; echo done")))
            await next_turn()  # it has the only shell now
            other = asyncio.create_task(site.ask(executed("echo other")))
            return [(await busy).text, (await other).text]

        assert site.run(two()) == ["done\n", "other\n"]
        monkeypatch.setattr(module, "FREE_SECONDS", 0.0)
        with pytest.raises(OverloadedError):
            site.run(two())


def test_an_unused_shell_is_ended_and_its_lines_are_remembered(history: History) -> None:
    with opened() as site:
        site.typed(history, "x=1")
        site.run(site.visits.end_unused(600))
        assert site.visits.kept == 1
        site.run(site.visits.end_unused(0))
        assert site.visits.kept == 0
        told = site.run(site.ask(history.messages("echo $x")))
        assert (told.text, told.again) == ("1\n", 1)


def test_what_takes_too_long_to_run_again_is_refused(
    site: Site, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    history.messages("true")
    with pytest.raises(ConversationTooLongError):
        site.run(site.ask(history.messages("true")))


def test_a_machine_that_is_killed_takes_one_visit_with_it_and_that_is_made_again(
    site: Site, history: History
) -> None:
    other = History(system=f"{history.system}other")
    site.typed(history, "x=1")
    site.typed(other, "y=2")
    (visit,) = [each for each in site.visits.known if each.lines[0].text == "x=1" and each.shell][
        -1:
    ]
    lines = visit.shell._lines  # type: ignore[union-attr]
    lines._sandbox._process.kill()
    with pytest.raises(SandboxError):
        site.run(site.ask(history.messages("true")))
    assert site.typed(other, "echo $y") == ["2\n"]
    assert site.typed(history, "echo $x") == ["1\n"]


def test_the_oldest_lines_are_forgotten(
    site: Site, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 12)
    site.typed(history, "x=1", *SAME, *SAME)
    assert max(len(visit.lines) for visit in site.visits.known if visit.forgot) == 12
    assert site.typed(history, "echo $x") == ["1\n"]


@pytest.mark.parametrize("seconds", [0.0, float("nan"), float("inf")])
def test_impossible_times_are_refused(seconds: float) -> None:
    with pytest.raises(LimitsError, match="idle_seconds"):
        Visits(cast("Any", None), 4, seconds)  # it opens no shell
    with pytest.raises(LimitsError, match="seconds"):
        ServerBounds(seconds=seconds)
