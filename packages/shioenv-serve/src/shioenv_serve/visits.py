"""Assign requests to shells by conversation, and limit the number of open shells.

A request contains a conversation, but no identity of its sender. One rule isolates visitors: a line
runs only in a shell that ran exactly the conversation's earlier lines. If there is no such shell,
the lines are replayed.
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
"""Visits remembered for each open shell, so that their lines can be replayed; our choice."""

MOST_LINES: Final = 1024
"""Maximum remembered lines of a visit; our choice. Older ones are dropped, and not replayed."""

MOST_CHARACTERS: Final = 1 << 20
"""Maximum characters of a visit's remembered lines; our choice, as in the longest request."""

AGAIN_SECONDS: Final = 30.0
"""Maximum seconds for replaying the lines of a conversation; our choice."""

ARRIVAL_SECONDS: Final = 0.1
"""Seconds that an unknown conversation waits for an earlier request to arrive; our choice."""

FREE_SECONDS: Final = 10.0
"""Seconds that a line waits for a free shell when all are busy; our choice."""

SWEEP_SECONDS: Final = 5.0
"""Seconds between two searches for unused shells."""


def _nothing(visit: str) -> None:
    """Ignore a visit."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A shell's answer to a line."""

    visit: str
    """The visit's number, as in the log."""
    behavior: Behavior | None
    """None if the runner declined (`declined`)."""
    runner: str
    """The source of the answer: `machine` or `model`."""
    confidence: float | None = None
    """The model's confidence; None if the line was executed."""
    declined: str = ""
    """The reason why the runner gave no answer."""
    again: int = 0
    """The number of earlier lines that were replayed for this one."""

    @property
    def text(self) -> str:
        """The output as text. Invalid UTF-8 becomes U+FFFD."""
        return "" if self.behavior is None else self.behavior.output.decode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class VisitLine:
    """A line of a visit, compared by identity, not by text."""

    text: str
    runs_again: bool = True
    """Whether the line is included when the visit's lines are replayed.

    False for a line that ended its shell, broke its machine, or could not be run.
    """


@dataclass(slots=True, eq=False)
class Visit:
    """A remembered conversation, and the shell that ran its lines."""

    key: str
    lines: list[VisitLine]
    answers: list[str]
    number: str = field(default_factory=lambda: secrets.token_hex(6))
    """The visit's number in the log."""
    shell: Shell | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a line is run; further lines wait in order."""
    waiting: int = 0
    """The number of requests that hold the turn, or wait for it."""
    used: float = field(default_factory=time.monotonic)
    forgot: bool = False
    """Whether the oldest lines were dropped."""

    @property
    def transcript(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The visit's lines and answers, by which it differs from other visits."""
        return tuple(self._texts), tuple(self.answers)

    @property
    def _texts(self) -> list[str]:
        return [line.text.strip() for line in self.lines]

    def fits(self, conversation: Conversation) -> bool:
        """Whether the conversation may continue this visit: its earlier lines and answers match."""
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
        """Append a line; from then on the visit matches only conversations with that line."""
        self.lines.append(VisitLine(text))
        while len(self.lines) > MOST_LINES or sum(map(len, self._texts)) > MOST_CHARACTERS:
            del self.lines[0]
            self.forgot = True
        del self.answers[:-MOST_LINES]
        self.used = time.monotonic()
        return self.lines[-1]


class Visits:
    """All visits of a server, used by one event loop; shells run in threads.

    At most `most` shells are open, each for at most `idle_seconds` without a line. The lines of a
    closed shell are remembered for a while, and replayed if necessary.
    """

    def __init__(self, shells: Shells, most: int, idle_seconds: float) -> None:
        """Create an empty store. Errors: LimitsError for an invalid idle time."""
        refuse_limit("idle_seconds", idle_seconds)
        self._shells, self._most, self._idle_seconds = shells, most, idle_seconds
        self._threads = ThreadPoolExecutor(most + 2, thread_name_prefix="shioenv-shell")
        self.known: list[Visit] = []
        """The remembered visits."""
        self.kept = 0
        """The number of shells that are open or being opened, without spare ones."""
        self.on_end: Callable[[str], object] = _nothing
        """A callback with the number of each visit when it is dropped, or when the server stops."""
        self._freed = asyncio.Event()
        """Set once a shell has run its line or was closed."""
        self._closing = False
        self._sweeping: asyncio.Task[None] | None = None
        self._work: set[asyncio.Future[Any]] = set()

    async def start(self) -> None:
        """Open spare shells for the first visitors, and begin to close unused ones periodically."""
        await self._in_thread(self._shells.make_ready)
        self._sweeping = asyncio.create_task(self._sweep())

    async def answer(
        self, conversation: Conversation, heard: Callable[[str], object] = _nothing
    ) -> Answered:
        """Run the conversation's newest line and return the answer.

        `heard` is called with the visit's number before the line is run. Errors: OverloadedError,
        ConversationTooLongError. InputError for a line that is not valid input. SandboxError if the
        machine broke.
        """
        if conversation.is_alone:
            return await self._alone_answer(conversation, heard)
        visit = self._found(conversation)
        if visit is None and conversation.lines:
            # requests may overtake each other, for example when a user pastes lines
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
        """Close the shells that got no line for that long; `start` makes this periodic."""
        old = time.monotonic() - seconds
        for visit in list(self.known):
            if visit.shell and not visit.waiting and visit.used <= old:
                await self._end(visit)

    async def close(self) -> None:
        """Wait for running lines, and close every shell."""
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
        """Return the visit that the conversation continues; None if there is none, or several.

        If visits with different transcripts match, choosing one could expose another visitor's
        shell. If only their answers differ, the lines are replayed in a new shell.
        """
        fits = [
            visit
            for visit in self.known
            if visit.key == conversation.key and visit.fits(conversation)
        ]
        if not fits:
            return None
        answers = list(conversation.answers)
        # The newest answers may not have reached the client before it sent this line.
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
        """Run the visit's newest line in a shell that ran the others."""
        again = 0
        if visit.shell is None:
            again = await self._rebuild(visit, line)
        try:
            told = await self._typed(visit, line)
        except ShellEndedError:  # the shell had ended before the line was sent
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
            if not isinstance(error, InputError):  # the shell's state is unknown
                await self._end(visit)
            raise
        if told.behavior is None:
            line.runs_again = False
        if shell.ended:
            line.runs_again = False
            await self._end(visit)
        return told

    def _ask(self, shell: Shell, text: str) -> Answered:
        """Run a line in a shell; called in a thread."""
        try:
            behavior = shell.run(text)
        except Abstained as error:
            return Answered("", None, "model", declined=error.message)
        runner, confidence = answered_by(shell)
        return Answered("", behavior, runner, confidence)

    async def _rebuild(self, visit: Visit, line: VisitLine) -> int:
        """Open a new shell for the visit, replay its earlier lines in it, and return their number.

        If a line ends the shell, replaying starts again without it.
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
        """Replay lines in a thread, and return whether the shell is still open afterwards."""
        for line in lines:
            if self._closing or time.monotonic() > end:
                raise ConversationTooLongError(
                    f"repeating the conversation's lines takes more than {AGAIN_SECONDS:g} s",
                    hint="begin a new conversation",
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
        """Open a new shell in the reserved slot."""
        try:
            shell: Shell = await self._in_thread(self._shells.open)
        except BaseException:
            self.kept -= 1
            raise
        self._make_ready()
        return shell

    def _make_ready(self) -> None:
        """Start opening spare shells for the next visitors in a thread, without waiting."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._threads, self._shells.make_ready)
        self._work.add(future)

        def done(ready: asyncio.Future[None]) -> None:
            self._work.discard(ready)
            ready.exception()  # the next visitor opens a shell itself, and gets the error

        future.add_done_callback(done)

    async def _take_slot(self) -> None:
        """Reserve a slot for one more shell, closing the least recently used one if necessary."""
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
                    f"all {self._most} shells are busy",
                    hint="retry later, or start the server with more --sessions",
                ) from None
        self.kept += 1

    async def _end(self, visit: Visit) -> None:
        """Close the visit's shell, if any."""
        shell, visit.shell = visit.shell, None
        if shell is not None:
            try:
                await self._in_thread(shell.close)
            finally:
                self.kept -= 1
                self._freed.set()

    def _forget(self) -> None:
        """Drop the least recently used visits if there are too many."""
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
        """Run work in a thread and return its result; `close` waits for it even if cancelled."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, *given)
        self._work.add(future)
        future.add_done_callback(self._work.discard)
        return await asyncio.shield(future)
