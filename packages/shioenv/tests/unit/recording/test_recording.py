"""Records made of sessions: the causes of volatility."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.dataset.verify import record_problems
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Session
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.record import Record, ScoredSegment
from shioenv.domain.runner import ScriptedCall, ScriptedRunner
from shioenv.irreducibility.scoring import UNSCORED, Scoring
from shioenv.recording.session import SessionRecorder
from shioenv.recording.volatility import merges, unsettled
from shioenv.sandbox.base import LONGEST_INPUT

MOMENT = datetime(2031, 3, 7, 9, 5, tzinfo=UTC).timestamp()


class Says(ScriptedRunner):
    """Answers every text with the same output."""

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = output.encode()

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        return Behavior(exit_code=0, output=self.output, patch=ContextPatch(()))


def recorded(runner: ScriptedRunner, *tokens: str, budget: int = 4, **options: Any) -> Record:
    """Return the record of one input that is run in /home."""
    volatile = options.pop("volatile", False)
    scoring = Scoring(budget=budget, noise_runs=options.pop("noise_runs", 3))
    recorder = SessionRecorder(scoring=scoring, **options)
    session = Session("/home", (Input.from_marked(tokens),))
    recorded = recorder.record(session, runner, random.Random(0), volatile=volatile)
    return recorded.record(0, system="s", sampler="gcs")


def is_volatile(output: str) -> bool:
    return recorded(Says(output), "ls", clock=lambda: MOMENT).volatile


@pytest.mark.parametrize(
    "output",
    [
        "-rw-r--r-- 1 root root 0 Mar  7 09:05 new\n",
        "2031-03-07 09:05 new\n",
        "07 Mar 2031\n",
        "20310307\n",
        f"{int(MOMENT)}\n",
        "dr-xr-xr-x 97 nobody nogroup 0 Feb  1 01:36 proc\n",
        "Fri Mar  7 09:05:00 UTC 2031\n",
    ],
)
def test_an_output_that_shows_its_own_day_is_volatile(output: str) -> None:
    assert is_volatile(output)


@pytest.mark.parametrize(
    "output", ["", "Mar  7  2025 old\n", "Mar  7 2025\n", "2025-03-07\n", "Mar 17 09:00\n"]
)
def test_other_dates_are_not(output: str) -> None:
    assert not is_volatile(output)


class Reaches(ScriptedRunner):
    """Reaches a limit in some of its whole runs, and always without its argument."""

    def __init__(self, name: str, runs: set[int]) -> None:
        super().__init__()
        self.name, self.reaching, self.whole = name, runs, 0

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        if asked.text.endswith(" -l"):
            self.whole += 1
            if self.whole not in self.reaching:
                return Behavior(exit_code=0, output=b"")
        return Behavior(exit_code=0, output=b"", limits_hit=(self.name,))


ALWAYS = {1, 2, 3}


@pytest.mark.parametrize(
    ("name", "runs", "expected"),
    [
        ("cpu_seconds", ALWAYS, True),
        ("memory_bytes", ALWAYS, True),
        ("processes", ALWAYS, True),
        ("processes", {2}, True),
        ("processes", {3}, True),
        ("scan_seconds", ALWAYS, True),
        ("disk_bytes", ALWAYS, False),
        ("disk_inodes", ALWAYS, False),
        ("disk_bytes", {3}, True),
        ("cpu_seconds", set(), False),
    ],
)
def test_a_limit_that_is_found_by_looking_makes_a_record_volatile(
    name: str, runs: set[int], expected: bool
) -> None:
    runner = Reaches(name, runs)
    record = recorded(runner, "ls", "-l")
    assert runner.whole == (4 if runs == {3} else 3)  # the third has two pipes, and may disagree
    assert record.limits_hit == ([name] if 1 in runs else [])
    assert record.volatile is expected


class Channels(ScriptedRunner):
    """Prints this, and another text without its argument."""

    def __init__(self, stdout: bytes, stderr: bytes, odd: bytes = b"") -> None:
        super().__init__()
        self.stdout, self.stderr, self.odd = stdout, stderr, odd

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        if not asked.text.endswith("-l"):
            return Behavior(0, b"other")
        if asked.separate:
            out = self.stdout + self.odd
            return Behavior(0, out + self.stderr, stdout=out, stderr=self.stderr)
        return Behavior(0, self.stderr + self.stdout)

    @property
    def runs(self) -> list[bool]:
        """Return for each whole run whether it had two pipes."""
        return [asked.separate for asked in self.asked if asked.text.endswith("-l")]


@pytest.mark.parametrize(
    ("runner", "runs"),
    [
        (Channels(b"out", b""), [False, False, True]),
        (Channels(b"", b"err"), [False, False, True]),
        (Channels(b"", b""), [False, False, True]),
        (Channels(b"out", b"err"), [False, False, True, False]),
        (Channels(b"out", b"", odd=b"!"), [False, False, True, False]),
    ],
)
def test_the_run_with_two_pipes_is_a_noise_run_where_it_tells_the_same(
    runner: Channels, runs: list[bool]
) -> None:
    record = recorded(runner, "ls", "-l")
    assert runner.runs == runs
    assert record.n_executions == 3 + 1
    assert record.noise_threshold == 0.95
    assert record.volatile is bool(runner.odd)
    assert (record.stdout, record.stderr) == (
        (runner.stdout + runner.odd).decode(),
        runner.stderr.decode(),
    )


class Counts(ScriptedRunner):
    """Never prints the same text twice."""

    def __init__(self, stderr: bytes = b"") -> None:
        super().__init__()
        self.stderr = stderr

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        number = len(self.asked)
        patch = ContextPatch((("a", f"/fs/{number}", {}),))
        if asked.separate:
            out = b"%d\n" % number
            return Behavior(0, out + self.stderr, patch, stdout=out, stderr=self.stderr)
        return Behavior(0, self.stderr + b"%d\n" % number, patch)


@pytest.mark.parametrize("volatile", [False, True])
def test_what_is_recorded_of_what_differs_is_all_of_one_run(volatile: bool) -> None:
    runner = Counts()
    record = recorded(runner, "ls", "-l", volatile=volatile)
    assert record.volatile
    (number,) = (at for at, asked in enumerate(runner.asked, start=1) if asked.separate)
    assert (record.output, record.stdout, record.stderr) == (f"{number}\n", f"{number}\n", "")
    assert record.context_patch == f'[["a","/fs/{number}",{{}}]]'


def test_where_the_order_of_two_channels_is_lost_neither_is_recorded() -> None:
    record = recorded(Counts(b"error\n"), "ls", "-l")
    assert (record.output, record.stdout, record.stderr) == ("error\n1\n", None, None)


class Ordered(ScriptedRunner):
    """Prints the order of its processes, where that is one of these."""

    def __init__(self, *told: str) -> None:
        super().__init__()
        self.told = told

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        return Behavior(0, asked.order.encode() if asked.order in self.told else b"")


@pytest.mark.parametrize(
    "tokens",
    [
        ("ls", "-l", "|", "wc"),
        ("ls", "&"),
        ("ls", "|&", "wc"),
        ("cat", "<(ls)"),
        ("ls", ">", ">(wc)"),
        ("coproc", "ls"),
        ("echo", "$(ls | wc)"),
    ],
)
@pytest.mark.parametrize("order", ["eager", "lazy"])
def test_what_one_order_of_processes_alone_shows_makes_a_record_volatile(
    tokens: tuple[str, ...], order: str
) -> None:
    assert recorded(Ordered(order), *tokens, budget=0).volatile
    assert not recorded(Ordered(), *tokens, budget=0).volatile


@pytest.mark.parametrize(
    "tokens",
    [("ls", "-l"), ("ls", "&&", "wc"), ("ls", "||", "wc"), ("ls", "2>&1"), ("ls", "&>", "x")],
)
def test_one_process_after_the_other_needs_no_order(tokens: tuple[str, ...]) -> None:
    runner = Ordered("eager", "lazy")
    assert not recorded(runner, *tokens, budget=0).volatile
    assert {asked.order for asked in runner.asked} == {"as it comes"}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("curl: (7) Failed to connect to localhost port 80 after 0 ms: Couldn't connect\n", True),
        ("a\n* Failed to connect to x port 8080 after 12 ms: Couldn't connect to server\n", True),
        ("curl: (28) Connection timed out after 1001 milliseconds\n", True),
        ("1+0 records in\n512 bytes copied, 4.2e-05 s, 12 MB/s\n", True),
        ("1024 bytes (1.0 kB, 1.0 KiB) copied, 0.000123 s, 8.3 MB/s\n", True),
        ("\nreal\t0m0.001s\nuser\t0m0.000s\n", True),
        ("real 0.00\nuser 0.00\nsys 0.00\n", True),
        ("64 bytes from localhost (::1): icmp_seq=1 ttl=64 time=0.021 ms\n", True),
        ("xargs: unmatched single quote; by default quotes are special to xargs\n", True),
        ("xargs: WARNING: a NUL character occurred in the input.\n", True),
        ("xargs: echo: terminated by signal 13\n", False),
        ("the request was answered after 30 ms\n", False),
        ("curl: (6) Could not resolve host: example.com\n", False),
        ("real time\n", False),
    ],
)
def test_an_output_that_tells_how_long_something_took_is_volatile(
    output: str, expected: bool
) -> None:
    assert is_volatile(output) is expected
    written = Writes(output)
    assert recorded(written, "ls", clock=lambda: MOMENT).volatile is expected


COMPRESSOR_ENDED = "tar (child): out/: Cannot open: Is a directory\n"


@pytest.mark.parametrize(
    ("text", "output", "expected"),
    [
        ("tar -czf out/ a", COMPRESSOR_ENDED, True),
        ("tar czf out/ a", COMPRESSOR_ENDED, True),
        ("cd /; tar --no-xattrs -cjf out/ -C a .", COMPRESSOR_ENDED, True),
        ("tar -z --create -f out/ a", COMPRESSOR_ENDED, True),
        ("tar -I false -cf x.tar a", "tar: Child returned status 1\n", True),
        ("tar -vzcf out/ a", "a/\n" + COMPRESSOR_ENDED, True),
        ("tar -xzf out/", COMPRESSOR_ENDED, False),
        ("tar xzf out/ c", COMPRESSOR_ENDED, False),
        ("tar -tzf archive.tgz", "tar: Child returned status 1\n", False),
        ("tar -xzf out/ -C case --checkpoint", COMPRESSOR_ENDED, False),
        ("tar -xfc -z", COMPRESSOR_ENDED, False),
        ("cat log.tar -c", COMPRESSOR_ENDED, False),
        ("tar -xzf out/ | cat -c", COMPRESSOR_ENDED, False),
        ("tar -czf out.tgz a", "", False),
        ("tar -cf out/ a", "tar: out/: Cannot open: Is a directory\n", False),
    ],
)
def test_a_tar_that_creates_an_archive_does_not_wait_for_its_compressor(
    text: str, output: str, expected: bool
) -> None:
    assert unsettled(output.encode(), text) is expected


def test_without_scores_inputs_are_run_twice_and_nothing_is_left_out_of_them() -> None:
    runner = Channels(b"out", b"")
    record = recorded(runner, "ls", "-l", budget=0, noise_runs=2)
    assert [asked.separate for asked in runner.asked] == [False, True]
    assert record.irreducibility is record.necessary is record.noise_threshold is None
    assert (record.n_arguments, record.n_executions, record.exact) == (1, 0, False)
    assert record.segments == [ScoredSegment(command="ls", n_arguments=1)]
    assert record.stdout == "out"
    assert list(record_problems(record, UNSCORED)) == []
    assert list(record_problems(record)) == []
    assert list(record_problems(record, Scoring())) != []
    scored = recorded(runner, "ls", "-l")
    assert list(record_problems(scored, UNSCORED)) != []


def test_without_scores_runs_that_disagree_make_a_record_volatile() -> None:
    assert recorded(Channels(b"out", b"", odd=b"!"), "ls", "-l", budget=0, noise_runs=2).volatile
    assert not recorded(Channels(b"out", b"err"), "ls", "-l", budget=0, noise_runs=2).volatile


class Breaks(ScriptedRunner):
    """Breaks its sandboxes a number of times where its text ends with one of these."""

    def __init__(self, *endings: str, times: int = 1 << 30) -> None:
        super().__init__()
        self.endings, self.left = endings, times

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        if asked.text.endswith(self.endings) and self.left:
            self.left -= 1
            return Behavior(137, b"", limits_hit=("sandboxes",), volatile=True)
        return Behavior(exit_code=0, output=b"")


def test_what_breaks_its_sandboxes_is_run_alone_once_and_then_in_one_at_a_time() -> None:
    runner, alone = Breaks("-l"), []

    def by_itself(run: Callable[[], Behavior]) -> Behavior:
        alone.append(len(runner.asked))
        return run()

    record = recorded(runner, "ls", "-l", alone=by_itself)
    assert (record.limits_hit, record.volatile) == (["sandboxes"], True)
    assert alone == [1]
    assert [asked.sandboxes for asked in runner.asked[:2]] == [None, None]
    assert {asked.sandboxes for asked in runner.asked[2:]} == {1}


@pytest.mark.parametrize(("endings", "times"), [(("-l",), 1), (("ls",), 1 << 30)])
def test_what_broke_sandboxes_but_once_or_without_an_argument_is_recorded_as_it_is(
    endings: tuple[str, ...], times: int
) -> None:
    runner = Breaks(*endings, times=times)
    record = recorded(runner, "ls", "-l")
    assert (record.exit_code, record.limits_hit) == (0, [])
    assert record.volatile is False


class Writes(ScriptedRunner):
    """Answers every text with a written file, and one that shows files with its content."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.content = content.encode()

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        shown = asked.text.endswith("\ncat -- '/home/my list' /etc/b")
        return Behavior(
            exit_code=0,
            output=self.content if shown else b"",
            content_digests={"my list": "d1", "/etc/b": "d2"},
        )


@pytest.mark.parametrize(("content", "expected"), [("Mar  7 09:05 x\n", True), ("same\n", False)])
def test_a_file_that_shows_its_own_day_is_volatile(content: str, expected: bool) -> None:
    assert recorded(Writes(content), "ls", clock=lambda: MOMENT).volatile is expected


class WritesMany(ScriptedRunner):
    """Answers every text with many written files; the last of them shows a date."""

    def __init__(self, files: int, length: int) -> None:
        super().__init__()
        self.names = [f"{number:0{length}}" for number in range(files)]

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        assert len(asked.text.encode()) < LONGEST_INPUT
        shown = "\ncat --" in asked.text and asked.text.endswith(self.names[-1])
        digests = dict.fromkeys(self.names, "d")
        output = b"Mar  7 09:05 x\n" if shown else b""
        return Behavior(exit_code=0, output=output, content_digests=digests)


@pytest.mark.parametrize(
    ("files", "length", "looks"),
    [(3, 9, 1), (4000, 60, 3), (4000, 300, 0), (2, 1 << 17, 0)],
)
def test_files_are_looked_at_in_as_many_runs_as_their_names_take(
    files: int, length: int, looks: int
) -> None:
    runner = WritesMany(files, length)
    assert recorded(runner, "ls", clock=lambda: MOMENT).volatile is True
    assert sum("\ncat --" in asked.text for asked in runner.asked) == looks


class WritesEmpty(ScriptedRunner):
    """Answers every text with written empty files, and perhaps one with content."""

    def __init__(self, *filled: str) -> None:
        super().__init__()
        self.filled = filled

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        empty = dict.fromkeys(["new", "x" * LONGEST_INPUT], hashlib.sha256(b"").hexdigest())
        digests = empty | dict.fromkeys(self.filled, "d")
        return Behavior(exit_code=0, output=b"", content_digests=digests)


@pytest.mark.parametrize("filled", [(), ("full",)])
def test_only_files_that_hold_something_are_looked_at(filled: tuple[str, ...]) -> None:
    runner = WritesEmpty(*filled)
    assert recorded(runner, "ls").volatile is False
    looks = [asked.text for asked in runner.asked if "\ncat --" in asked.text]
    assert [look.rpartition("\n")[2] for look in looks] == [f"cat -- /home/{x}" for x in filled]


class Dates(ScriptedRunner):
    """Answers every text with these operations on files."""

    def __init__(self, *operations: Operation) -> None:
        super().__init__()
        self.patch = ContextPatch(operations)

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        return Behavior(exit_code=0, output=b"", patch=self.patch)


def dated(path: str, **fields: object) -> list[Operation]:
    return [("=", f"/fs/{path}/{name}", value) for name, value in fields.items()]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([("a", "/fs/x", {"year": 2031, "month": "Mar", "day": 7, "time": "00:00"})], True),
        ([("a", "/fs/x", {"year": 2025, "month": "Mar", "day": 7, "time": "00:00"})], False),
        ([("a", "/env/year", "2031")], False),
        ([("=", "/env/year", "2031")], False),
        ([("a", "/fs/x/target", "y"), ("r", "/fs/x/target")], False),
        ([("a", "/fs/x/target", "y"), *dated("x", year=2031, month="Mar", day=7)], True),
        (dated("x", year=2031, month="Mar", day=7), True),
        (dated("x", year=2031, day=7), True),
        (dated("x", year=2031, day=8), False),
        (dated("x", month="Mar", day=7), False),
        ([*dated("x", year=2031, month="Apr"), *dated("y", month="Mar", day=7)], False),
        ([("m", "/fs/x", "/fs/y"), ("r", "/fs/z")], False),
    ],
)
def test_a_patch_that_holds_its_own_day_is_volatile(
    operations: list[Operation], expected: bool
) -> None:
    assert recorded(Dates(*operations), "ls", clock=lambda: MOMENT).volatile is expected


class Hangs(ScriptedRunner):
    """Times out without its first argument, and keeps its time limit."""

    waited = True

    def __init__(self) -> None:
        super().__init__()
        self.given: list[float | None] = []

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        hangs = "-c" not in asked.text
        if hangs:
            self.given.append(asked.wall_seconds)
        return Behavior(
            exit_code=124 if hangs else 0,
            output=b"",
            patch=ContextPatch(()),
            timed_out=hangs,
        )


def test_after_one_sub_input_that_hangs_the_others_are_given_less_time() -> None:
    runner = Hangs()
    record = recorded(runner, "ping", "-c 1", "-n", "-q", budget=64)
    assert not record.volatile
    assert runner.given[:2] == [None, None], "the first one that hangs is tried once more"
    assert all(seconds is not None and seconds < 1 for seconds in runner.given[2:])
    assert len(runner.given) >= 4


class Waits(Says):
    """Takes its time; times out where the count is missing."""

    def __init__(self) -> None:
        super().__init__("here\n")
        self.given: list[float] = []
        self.seconds = 0.0

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        if asked.wall_seconds is not None:
            self.given.append(asked.wall_seconds)
        if "-c1" not in asked.text:
            self.seconds += 2.0 if asked.wall_seconds is None else asked.wall_seconds
            return Behavior(124, b"", timed_out=True, limits_hit=("wall_seconds",), volatile=True)
        self.seconds += 1.0
        return super().answer_to(asked)


def test_after_one_that_runs_out_of_time_none_gets_more_than_it_had() -> None:
    runner = Waits()
    recorded(runner, "ping", "-c1", "-n", "host", budget=8, volatile=True)
    assert set(runner.given) == {2.0}


class Works(ScriptedRunner):
    """Hangs without its first argument; takes a second of work without its last."""

    seconds = 0.0

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        hangs, works = "-c" not in asked.text, "-q" not in asked.text
        self.waited = hangs
        given = 2.0 if asked.wall_seconds is None else asked.wall_seconds
        takes = 2.0 if hangs else 1.1 if works else 0.01
        self.seconds += min(given, takes)
        if takes >= given:
            return Behavior(124, b"", timed_out=True, patch=ContextPatch(()))
        return Behavior(exit_code=0, output=b"", patch=ContextPatch(()))


def test_what_works_when_its_shorter_time_is_over_gets_the_whole() -> None:
    runner = Works()
    record = recorded(runner, "ping", "-c 1", "-n", "-q", budget=64)
    (segment,) = record.segments
    assert isinstance(segment, ScoredSegment)
    assert segment.arguments
    first, *further = segment.arguments
    assert first.leave_one_out
    assert [argument.leave_one_out for argument in further] == [False, False]


class Lags(ScriptedRunner):
    """A process still runs after the shell's end, unless the run is exclusive."""

    def __init__(self, *, always: bool = False) -> None:
        super().__init__()
        self.alone = 0
        self._always = always
        self._is_alone = False

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        late = self._always or ("-a" not in asked.text and not self._is_alone)
        said = b"" if late else b"here\n"
        reached = ("background_seconds",) if late else ()
        return Behavior(exit_code=0, output=said, patch=ContextPatch(()), limits_hit=reached)

    def by_itself(self, run: Callable[[], Behavior]) -> Behavior:
        self.alone += 1
        self._is_alone = True
        try:
            return run()
        finally:
            self._is_alone = False


def test_what_is_late_behind_the_shells_end_is_tried_alone() -> None:
    runner = Lags()
    session = Session("/home", (Input.from_marked(["ls", "-a", "-b"]),))
    recorder = SessionRecorder(scoring=Scoring(budget=4, noise_runs=3), alone=runner.by_itself)
    found = recorder.record(session, runner, random.Random(0))
    assert found.score is not None
    assert found.score.irreducibility == 0
    assert runner.alone == 1  # without -a
    always = Lags(always=True)
    replace(recorder, alone=always.by_itself).record(session, always, random.Random(0))
    assert always.alone == 1


class Among(Says):
    """Ends its run with two pipes when that of its neighbour ends."""

    def __init__(self, own: threading.Event, neighbours: threading.Event) -> None:
        super().__init__("here\n")
        self._own, self._neighbours = own, neighbours
        self.waited_in_vain = False

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        if asked.separate:
            self._own.set()
            self.waited_in_vain = not self._neighbours.wait(5)
        return super().answer_to(asked)


def test_sessions_are_recorded_side_by_side() -> None:
    """Python before 3.12 computes a cached property of one object at a time."""
    first, second = threading.Event(), threading.Event()
    runners = [Among(first, second), Among(second, first)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda runner: recorded(runner, "ls", "-a"), runners))
    assert [runner.waited_in_vain for runner in runners] == [False, False]


LIMIT = 32
"""Bytes of output that runs of `Limited` keep, of each channel where they have two pipes."""


class Limited(Channels):
    """Writes pieces to its two channels in turn; `LIMIT` bytes of them are kept."""

    def __init__(self, *pieces: tuple[int, bytes]) -> None:
        super().__init__(b"", b"")
        self.pieces = pieces

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        written = [b"".join(piece for at, piece in self.pieces if at == n) for n in (1, 2)]
        if not asked.separate:
            written = [b"".join(piece for _, piece in self.pieces)]
        kept = [channel[:LIMIT] for channel in written]
        out, err = kept if asked.separate else (None, None)
        cut = kept != written
        return Behavior(
            0,
            b"".join(kept),
            stdout=out,
            stderr=err,
            output_truncated=cut,
            limits_hit=("output_bytes",) if cut else (),
        )


@pytest.mark.parametrize(
    "runner",
    [
        pytest.param(Limited((1, b"o" * 40), (2, b"e" * 40)), id="both past the limit"),
        pytest.param(Limited((1, b"o" * 40), (2, b"e")), id="output past the limit"),
        pytest.param(Limited((2, b"e"), (1, b"o" * 40)), id="output past it, after an error"),
        pytest.param(Limited((2, b"e" * 40), (1, b"o")), id="errors past the limit"),
        pytest.param(Limited((1, b"o" * 20), (2, b"e" * 20)), id="both together past it"),
        pytest.param(Limited((1, b"o" * LIMIT), (2, b"e")), id="one byte past it"),
        pytest.param(Limited(*[(1, b"out"), (2, b"error")] * 20), id="in turn"),
        pytest.param(Limited(*[(1, b"a"), (2, b"ab")] * 30), id="in turn, alike"),
        pytest.param(Limited((1, b"o" * 40)), id="output alone"),
        pytest.param(Limited((2, b"e" * 40)), id="errors alone"),
        pytest.param(Limited((1, b"o" * LIMIT)), id="output up to the limit"),
        pytest.param(Limited(), id="nothing"),
    ],
)
@pytest.mark.parametrize("budget", [0, 4])
def test_a_truncated_output_has_its_channels_each_up_to_the_limit(
    runner: Limited, budget: int
) -> None:
    record = recorded(runner, "ls", "-l", budget=budget)
    out, err = (
        b"".join(piece for at, piece in runner.pieces if at == n)[:LIMIT].decode() for n in (1, 2)
    )
    whole = b"".join(piece for _, piece in runner.pieces)
    assert (record.output, record.stdout, record.stderr) == (whole[:LIMIT].decode(), out, err)
    assert record.output_truncated is (len(whole) > LIMIT)
    assert not record.volatile
    assert not [*record_problems(record)]


def test_runs_that_are_cut_off_and_differ_before_that_make_a_record_volatile() -> None:
    class Varying(Limited):
        """Writes another text once it has two pipes."""

        def answer_to(self, asked: ScriptedCall) -> Behavior:
            self.pieces = ((1, b"xy"[asked.separate :] * 40), (2, b"e" * 40))
            return super().answer_to(asked)

    record = recorded(Varying(), "ls", "-l")
    assert record.volatile
    assert (record.stdout, record.stderr) == (None, None)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([b"a", b"b", b"ab"]))), st.integers(0, 60))
def test_what_is_written_to_two_channels_is_a_merge_of_them(
    pieces: list[tuple[bool, bytes]], kept: int
) -> None:
    one, other = (b"".join(piece for at, piece in pieces if at is n) for n in (True, False))
    output = b"".join(piece for _, piece in pieces)[:kept]
    assert merges(output, one, other)
    assert not merges(output + b"c", one, other)


@given(*[st.binary(max_size=6).map(lambda text: bytes(byte % 2 for byte in text))] * 3)
def test_a_merge_is_found_exactly_where_there_is_one(
    output: bytes, one: bytes, other: bytes
) -> None:
    reached = {0}
    for place, byte in enumerate(output):
        reached = {at + 1 for at in reached if one[at : at + 1] == bytes([byte])} | {
            at for at in reached if other[place - at : place - at + 1] == bytes([byte])
        }
    assert merges(output, one, other) is bool(reached)
