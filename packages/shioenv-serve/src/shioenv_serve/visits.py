"""Visitors of a server: which shell goes on with a conversation, and how many shells are kept.

A request tells a conversation, and nothing of who sent it. The rule that keeps visitors apart: a
line is run in a shell that ran the conversation's earlier lines, and no other line. A shell that
ran one line more serves nobody else. Where no shell stands there, the lines are run again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shioenv.domain.behavior import Behavior
from shioenv.errors import (
    Abstained,
    ConversationTooLongError,
    InputError,
    OverloadedError,
    SandboxError,
    ShellEndedError,
)
from shioenv.live.shell import Shell
from shioenv.live.shells import Shells, answered_by
from shioenv.sandbox.base import refuse_limit
from shioenv_serve.conversations import Conversation, likeness

REMEMBERED: Final = 4
"""Visits that are remembered for each shell that is kept; ours: their lines can be run again."""

MOST_LINES: Final = 1024
"""Lines of a visit that are remembered; ours. Older ones are forgotten, and not run again."""

MOST_CHARACTERS: Final = 1 << 20
"""Characters of these lines; ours, as the longest request has."""

AGAIN_SECONDS: Final = 30.0
"""Seconds for which the lines of a conversation are run again at most; ours."""

ARRIVAL_SECONDS: Final = 0.1
"""Seconds for which an unknown conversation waits for the request that came before it; ours."""

FREE_SECONDS: Final = 10.0
"""Seconds for which a line waits until another one has ended, where every shell runs one; ours."""

SWEEP_SECONDS: Final = 5.0
"""Seconds between two looks for shells that nobody uses."""


def _nothing(visit: str) -> None:
    """Takes no notice of a visit."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a shell answered to a line."""

    visit: str
    """The number of the visit, as the log has it."""
    behavior: Behavior | None
    """None where the runner declined (`declined`)."""
    runner: str
    """Who answered."""
    confidence: float | None = None
    """How sure the model was; None where the line was run."""
    declined: str = ""
    """Why the runner gave no answer."""
    again: int = 0
    """Earlier lines that were run again for this one."""

    @property
    def text(self) -> str:
        """The output as text. What is no UTF-8 becomes U+FFFD."""
        return "" if self.behavior is None else self.behavior.output.decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class VisitLine:
    """A line of a visit. Another line with the same text is another one."""

    text: str
    runs_again: bool = True
    """Whether the line is run where the visit's lines are run again. One that ended its shell, that
    broke its machine, or that could not be run is not."""


@dataclass(slots=True, eq=False)
class Visit:
    """A conversation that is remembered, and the shell that stands at its end."""

    key: str
    lines: list[VisitLine]
    answers: list[str]
    number: str = field(default_factory=lambda: secrets.token_hex(6))
    """What the log calls the visit."""
    shell: Shell | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a line is run: the others wait, in their order."""
    waiting: int = 0
    """Requests that hold the turn, or wait for it."""
    used: float = field(default_factory=time.monotonic)
    forgot: bool = False
    """Whether the oldest lines were forgotten."""

    @property
    def transcript(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What tells the visit from another one: its lines and its answers."""
        return tuple(self._texts), tuple(self.answers)

    @property
    def _texts(self) -> list[str]:
        return [line.text.strip() for line in self.lines]

    def fits(self, conversation: Conversation) -> bool:
        """Whether the conversation can be this visit's, with just its newest line behind it."""
        told = [line.strip() for line in conversation.lines]
        more = len(self.lines) - len(told)
        if more < 0 or ((more or self.forgot) and not conversation.is_cut):
            return False
        if self._texts[more:] != told:
            return False
        answers, known = list(conversation.answers), self.answers
        if not conversation.is_cut:
            return known[: len(answers)] == answers
        starts = range(len(known) - len(answers) + 1)
        return any(known[start : start + len(answers)] == answers for start in starts)

    def ends_with(self, answers: list[str]) -> bool:
        """Whether these are the visit's newest answers."""
        return self.answers[len(self.answers) - len(answers) :] == answers and (
            bool(answers) or not self.answers
        )

    def add(self, text: str) -> VisitLine:
        """Puts a line at the visit's end; from here on the visit is that line's."""
        self.lines.append(VisitLine(text))
        while len(self.lines) > MOST_LINES or sum(map(len, self._texts)) > MOST_CHARACTERS:
            del self.lines[0]
            self.forgot = True
        del self.answers[:-MOST_LINES]
        self.used = time.monotonic()
        return self.lines[-1]


class Visits:
    """All visits of a server. One event loop uses it; shells work in threads.

    At most so many shells are kept (`most`), each for at most `idle_seconds` without a line. What
    was typed in a shell that was ended is remembered for a while, and is run again if need be.
    """

    def __init__(self, shells: Shells, most: int, idle_seconds: float) -> None:
        """Keep nothing yet. Errors: LimitsError for an impossible idle time."""
        refuse_limit("idle_seconds", idle_seconds)
        self._shells, self._most, self._idle_seconds = shells, most, idle_seconds
        self._threads = ThreadPoolExecutor(most + 2, thread_name_prefix="shioenv-shell")
        self.known: list[Visit] = []
        """The visits that are remembered."""
        self.kept = 0
        """Shells that are open, or are being opened; spare ones are not counted."""
        self.on_end: Callable[[str], object] = _nothing
        """Is told the number of a visit that is forgotten, and of each at the end."""
        self._freed = asyncio.Event()
        """Set once a shell has run its line or was ended."""
        self._closing = False
        self._sweeping: asyncio.Task[None] | None = None
        self._work: set[asyncio.Future[Any]] = set()

    async def start(self) -> None:
        """Opens what the first visitors are given, and looks for unused shells from now on."""
        await self._in_thread(self._shells.make_ready)
        self._sweeping = asyncio.create_task(self._sweep())

    async def answer(
        self, conversation: Conversation, heard: Callable[[str], object] = _nothing
    ) -> Answered:
        """What the conversation's newest line prints.

        `heard` is told the number of the line's visit before the line is run. Errors:
        OverloadedError, ConversationTooLongError. InputError for a line that no shell can be given.
        SandboxError where the machine broke.
        """
        if conversation.is_alone:
            return await self._alone_answer(conversation, heard)
        visit = self._found(conversation)
        if visit is None and conversation.lines:
            # requests overtake each other, as where somebody pastes lines
            end = time.monotonic() + ARRIVAL_SECONDS
            while visit is None and time.monotonic() < end:
                await asyncio.sleep(ARRIVAL_SECONDS / 10)
                visit = self._found(conversation)
        if visit is None:
            visit = Visit(
                conversation.key,
                [VisitLine(text) for text in conversation.lines],
                list(conversation.answers),
            )
            self.known.append(visit)
        line = visit.add(conversation.line)
        heard(visit.number)
        visit.waiting += 1
        try:
            async with visit.turn:
                return await self._run(visit, line)
        finally:
            visit.waiting -= 1
            visit.used = time.monotonic()
            self._freed.set()
            self._forget()

    async def end_unused(self, seconds: float) -> None:
        """Ends the shells that had no line for so long; from `start` on, this happens by itself."""
        old = time.monotonic() - seconds
        for visit in list(self.known):
            if visit.shell and not visit.waiting and visit.used <= old:
                await self._end(visit)

    async def close(self) -> None:
        """Waits for the lines that are running, and ends every shell."""
        self._closing = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._work:
            await asyncio.wait(self._work)
        await self._in_thread(self._shells.close)
        self._threads.shutdown()
        for visit in self.known:
            self.on_end(visit.number)

    def _found(self, conversation: Conversation) -> Visit | None:
        """The visit that the conversation goes on with; None where none is, or nobody knows which.

        Visits that differ in what the conversation does not tell are not chosen from: one would be
        another visitor's. Where they ran the same lines, these are run again.
        """
        fits = [
            visit
            for visit in self.known
            if visit.key == conversation.key and visit.fits(conversation)
        ]
        if not fits:
            return None
        answers = list(conversation.answers)
        # the newest answers may not have reached the client before it sent this line
        fits = [visit for visit in fits if visit.ends_with(answers)] or fits
        best = max(fits, key=lambda visit: (visit.shell is not None, visit.used))
        if not conversation.is_cut or len({visit.transcript for visit in fits}) == 1:
            return best
        if len({visit.transcript[0] for visit in fits}) == 1 and not best.forgot:
            same = Visit(best.key, [VisitLine(x.text, x.runs_again) for x in best.lines], [])
            same.answers = list(conversation.answers)
            self.known.append(same)
            return same
        return None

    async def _run(self, visit: Visit, line: VisitLine) -> Answered:
        """Runs the visit's newest line, in a shell that ran the others."""
        again = 0
        if visit.shell is None:
            again = await self._rebuild(visit, line)
        try:
            told = await self._typed(visit, line)
        except ShellEndedError:  # before the line: its machine was ended from outside
            await self._end(visit)
            again = await self._rebuild(visit, line)
            told = await self._typed(visit, line)
        if alike := likeness(told.text):
            visit.answers.append(alike)
        return replace(told, visit=visit.number, again=again)

    async def _typed(self, visit: Visit, line: VisitLine) -> Answered:
        shell = visit.shell
        assert shell is not None
        try:
            told = await self._in_thread(self._ask, shell, line.text)
        except ShellEndedError:
            raise
        except Exception as error:
            line.runs_again = False
            if not isinstance(error, InputError):  # nobody knows what the shell did
                await self._end(visit)
            raise
        if told.behavior is None:
            line.runs_again = False
        if shell.ended:
            line.runs_again = False
            await self._end(visit)
        return told

    def _ask(self, shell: Shell, text: str) -> Answered:
        """Has a shell run a line, in a thread."""
        try:
            behavior = shell.run(text)
        except Abstained as error:
            return Answered("", None, "model", declined=error.message)
        runner, confidence = answered_by(shell)
        return Answered("", behavior, runner, confidence)

    async def _rebuild(self, visit: Visit, line: VisitLine) -> int:
        """Gives the visit a new shell, in which its lines before one were run; their number.

        A line that ends the shell is left out, and the others are run once more.
        """
        end = time.monotonic() + AGAIN_SECONDS
        while True:
            await self._take_slot()
            visit.shell = await self._opened()
            number = visit.lines.index(line)
            texts = [each for each in visit.lines[:number] if each.runs_again]
            try:
                if await self._in_thread(self._repeat, visit.shell, texts, end):
                    return len(texts)
            except BaseException:
                await self._end(visit)
                raise
            await self._end(visit)

    def _repeat(self, shell: Shell, lines: list[VisitLine], end: float) -> bool:
        """Runs lines again, in a thread; whether the shell goes on after them."""
        for line in lines:
            if self._closing or time.monotonic() > end:
                raise ConversationTooLongError(
                    f"its lines need more than {AGAIN_SECONDS:g} s to be run again",
                    hint="begin another conversation",
                )
            try:
                shell.run(line.text)
            except (InputError, Abstained):
                line.runs_again = False
            except SandboxError:
                line.runs_again = False
                return False
            if shell.ended:
                line.runs_again = False
                return False
        return True

    async def _alone_answer(
        self, conversation: Conversation, heard: Callable[[str], object]
    ) -> Answered:
        visit = Visit(conversation.key, [], [])
        heard(visit.number)
        await self._take_slot()
        visit.shell = await self._opened()
        try:
            told = await self._in_thread(self._ask, visit.shell, conversation.line)
        finally:
            await self._end(visit)
        return replace(told, visit=visit.number)

    async def _opened(self) -> Shell:
        """A new shell in the slot that was taken."""
        try:
            shell: Shell = await self._in_thread(self._shells.open)
        except BaseException:
            self.kept -= 1
            raise
        self._make_ready()
        return shell

    def _make_ready(self) -> None:
        """Has a thread open what the next visitors are given, and waits for nothing."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, self._shells.make_ready)
        self._work.add(future)

        def done(ready: asyncio.Future[None]) -> None:
            self._work.discard(ready)
            ready.exception()  # the next visitor opens a shell by itself, and is told

        future.add_done_callback(done)

    async def _take_slot(self) -> None:
        """Counts one shell more. The one that was not used for longest is ended if need be."""
        end = time.monotonic() + FREE_SECONDS
        while self.kept >= self._most:
            idle = [visit for visit in self.known if visit.shell and not visit.waiting]
            if idle:
                await self._end(min(idle, key=lambda visit: visit.used))
                continue
            self._freed.clear()
            try:
                await asyncio.wait_for(self._freed.wait(), end - time.monotonic())
            except TimeoutError:
                raise OverloadedError(
                    f"all {self._most} shells are running lines",
                    hint="ask again later, or serve with more --sessions",
                ) from None
        self.kept += 1

    async def _end(self, visit: Visit) -> None:
        """Ends the visit's shell; does nothing where it has none."""
        shell, visit.shell = visit.shell, None
        if shell is not None:
            try:
                await self._in_thread(shell.close)
            finally:
                self.kept -= 1
                self._freed.set()

    def _forget(self) -> None:
        """Forgets the visits that were not used for longest, where there are too many."""
        too_many = len(self.known) - REMEMBERED * self._most
        if too_many > 0:
            idle = [visit for visit in self.known if not visit.shell and not visit.waiting]
            for visit in sorted(idle, key=lambda visit: visit.used)[:too_many]:
                self.known.remove(visit)
                self.on_end(visit.number)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self._idle_seconds / 2))
            await self.end_unused(self._idle_seconds)

    async def _in_thread(self, work: Callable[..., Any], *given: Any) -> Any:
        """What the work gives. It is waited for at the end, even where nobody waits any more."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, *given)
        self._work.add(future)
        future.add_done_callback(self._work.discard)
        return await asyncio.shield(future)
