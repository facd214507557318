"""Worker processes of one machine, with a fake sandbox: order, faults, kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count, repeat, takewhile
from pathlib import Path
from pickle import PicklingError

import pytest

from shioenv.dataset.generate import Progress
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.errors import (
    DatasetBusyError,
    GenerationError,
    HostError,
    InputError,
    UsageError,
)
from shioenv.execution.job import STARTING, WORKER_BYTES, NumberedJob, Opener, memory_here
from shioenv.execution.lanes import LANES
from shioenv.execution.local import BATCH, Crew, LocalExecutor
from shioenv.execution.schedule import Schedule
from support.dataset_fakes import (
    contents,
    interspersed,
    make,
    open_and_die,
    open_fake,
    open_nothing,
    sample,
)
from support.nightly import NIGHTLY, by_day
from support.paths import ROOT
from support.waiting import let_time_pass, wait_until

TESTS = str(ROOT / "tests")


def local(workers: int = 1, opener: Opener = open_fake) -> LocalExecutor:
    return LocalExecutor(workers, opener=opener)


@NIGHTLY
def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    one = make(tmp_path / "one", 1100, executor=local(1))
    two = make(tmp_path / "two", 1100, executor=local(2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert one.new == two.new == 1100
    assert one.executions == one.manifest.executions == two.executions
    assert (one.retried, one.restarts) == (0, 0)
    make(tmp_path / "none", 1100)  # all of it in this process
    assert contents(tmp_path / "one") == contents(tmp_path / "none")
    report = verify(tmp_path / "one")
    assert report.ok, report.problems[:5]


@pytest.mark.parametrize("word", by_day(["deadly", "broken"], 2))
def test_a_broken_sandbox_or_a_dead_worker_costs_an_attempt_only(tmp_path: Path, word: str) -> None:
    stream = [sample("echo", word), *(sample("echo", f"n{number}") for number in range(20))]
    faulty = make(tmp_path / "faulty", 21, executor=local(2), stream=stream)
    begun = LANES if word == "deadly" else 1
    assert 1 <= faulty.retried <= begun
    assert faulty.restarts == (word == "deadly")
    smooth = make(tmp_path / "smooth", 21, executor=local(), stream=stream)
    assert 1 <= smooth.retried <= begun
    assert contents(tmp_path / "faulty") == contents(tmp_path / "smooth")
    assert [one.session_id for one in read_records(tmp_path / "faulty")] == list(range(21))


@pytest.mark.parametrize("word", by_day(["always-broken", "always-deadly"], 2))
def test_what_fails_every_time_ends_the_run_and_keeps_the_rest(tmp_path: Path, word: str) -> None:
    stream = interspersed({5: sample("echo", word)})
    with pytest.raises(GenerationError, match="record 5 failed in 5 attempts") as caught:
        make(tmp_path / "a", stream=stream, executor=local())
    assert f"its input: echo {word}" in str(caught.value)
    kept: list[Progress] = []
    make(tmp_path / "a", stream=interspersed({5: sample("echo", "mended")}), report=kept.append)
    assert kept[0].kept >= 5
    assert verify(tmp_path / "a").ok


def test_a_bug_names_the_record_and_where_it_happened(tmp_path: Path) -> None:
    stream = interspersed({3: sample("echo", "bug")})
    with pytest.raises(GenerationError, match=r"record 3 failed \(echo bug\)") as caught:
        make(tmp_path / "a", stream=stream, executor=local())
    assert "a bug in the observer" in str(caught.value)
    assert "dataset_fakes.py" in str(caught.value)


def test_what_keeps_a_worker_from_starting_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="this host forbids everything") as caught:
        make(tmp_path / "a", executor=local(opener=open_nothing))
    assert caught.value.hint == "allow something"
    assert caught.value.exit_status == 3


def test_workers_that_die_at_once_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match=r"3 consecutive workers failed to start.*status 7"):
        make(tmp_path / "a", executor=local(opener=open_and_die))


def test_functions_that_workers_cannot_find_are_refused() -> None:
    for executor, do in ((local(), lambda lane, task: 0), (local(opener=lambda *_: 0), slowly)):  # type: ignore[arg-type]
        with pytest.raises((AttributeError, PicklingError), match="Can't"):
            next(executor.map(NumberedJob(do), [(0, 1)]))


def test_no_processes_can_do_nothing_and_too_many_have_no_room() -> None:
    with pytest.raises(UsageError):
        local(0)
    most = memory_here() // WORKER_BYTES
    assert local(most).workers == most
    with pytest.raises(UsageError, match="workers need about") as caught:
        local(most + 1)
    assert f"at most {most:,}" in str(caught.value)


def test_the_first_of_many_workers_does_not_wait_for_the_last() -> None:
    with local(10 * STARTING) as executor:
        answers = executor.map(NumberedJob(slowly), ((n, n) for n in range(10_000)))
        before = set(children())
        next(answers)
        assert len(set(children()) - before) <= 2 * STARTING
        answers.close()  # type: ignore[attr-defined]


def slowly(lane: object, task: tuple[int, int]) -> int:
    return task[1] * 10


def test_answers_come_together_where_tasks_are_quick() -> None:
    crew = Crew(NumberedJob(slowly, lanes=LANES), open_fake, 0, 1)
    schedule = Schedule(((number, number) for number in range(400)), batch=BATCH)
    messages = []
    try:
        while schedule.left:
            messages.append(crew.take(schedule))
    finally:
        crew.close()
    answers = [answer for message in messages for answer in message]
    assert sorted(answers) == [(number, 10 * number) for number in range(400)]
    assert len(messages) < 400  # a loaded machine has time for many


answered = 0
"""Tasks that this process has answered."""


def dies_once_or_says_where(lane: object, task: tuple[int, Path]) -> tuple[int, tuple[int, ...]]:
    """End the worker, which has answered by then, if the task's file does not exist yet."""
    global answered
    if answered > 20 and not task[1].exists():
        task[1].touch()
        os._exit(9)
    answered += 1
    let_time_pass(0.01, "the other workers start meanwhile, and get tasks as well")
    return os.getpid(), tuple(sorted(os.sched_getaffinity(0)))


def test_each_worker_stays_on_its_processor_and_its_successor_gets_the_free_one(
    tmp_path: Path,
) -> None:
    own = sorted(os.sched_getaffinity(0))
    crew = Crew(NumberedJob(dies_once_or_says_where), open_fake, 0, len(own), own)
    places: dict[int, tuple[int, ...]] = {}
    tasks = takewhile(lambda _: len(places) <= len(own), zip(count(), repeat(tmp_path / "death")))
    schedule = Schedule(tasks)

    def is_done() -> bool:
        places.update(answer for _, answer in crew.take(schedule))
        return not schedule.left

    try:
        wait_until(is_done, lambda: f"an answer of each worker and of a successor; {places}")
    finally:
        crew.close()
    assert crew.restarts == 1
    assert set(places.values()) == {(one,) for one in own}
    assert len(places) == len(own) + 1


def refuse(lane: object, task: tuple[int, int]) -> int:
    raise InputError("that is none", hint="another one")


def test_a_job_without_a_system_opens_nothing_and_its_processes_stay_for_the_next_tasks() -> None:
    job = NumberedJob(slowly)
    before = set(children())  # such as the resource tracker that another test started
    with local(2, opener=open_and_die) as executor:
        assert sorted(executor.map(job, [(3, 1), (1, 2), (2, 3)])) == [(1, 20), (2, 30), (3, 10)]
        first = children()
        assert dict(executor.map(job, enumerate(range(9)))) == {n: 10 * n for n in range(9)}
        assert children() == first
        assert list(executor.map(NumberedJob(slowly), [(0, 1)])) == [(0, 10)]
        assert set(children()) & set(first) == before
    assert set(children()) & set(first) == before


def test_errors_of_a_job_come_back_as_themselves() -> None:
    with local() as executor, pytest.raises(InputError) as caught:
        list(executor.map(NumberedJob(refuse, what="input"), [(4, 8)]))
    assert caught.value.message == "input 4 failed (8): that is none"
    assert caught.value.hint == "another one"


class Unreadable:
    """Cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exploding, ()


def exploding() -> None:
    raise RuntimeError("nobody can read it")


def test_a_task_that_workers_cannot_read_is_named_with_their_last_words() -> None:
    with local() as executor, pytest.raises(GenerationError) as caught:
        list(executor.map(NumberedJob(untouched), [(3, Unreadable())]))
    assert "task 3 failed in 5 attempts" in caught.value.message
    assert caught.value.message.endswith("RuntimeError: nobody can read it")


def untouched(lane: object, task: tuple[int, object]) -> int:
    return task[0]


def test_answers_of_a_map_that_was_left_come_never() -> None:
    job = NumberedJob(slowly)
    with local() as executor:
        for number, _ in executor.map(job, enumerate(range(100))):
            if number == 3:
                break
        assert list(executor.map(job, [(7, 7)])) == [(7, 70)]


def test_what_times_out_is_run_again_alone(tmp_path: Path) -> None:
    stream = [
        sample("echo", "hangs", "a", "b", "c", "d"),
        sample("echo", "hasty"),
        *(sample("echo", "slow", f"n{number}") for number in range(10)),
    ]
    make(tmp_path / "a", 12, executor=local(2), stream=stream)
    hangs, hasty, *others = read_records(tmp_path / "a")
    assert (hangs.timed_out, hangs.exit_code, hangs.volatile) == (True, 124, True)
    assert hangs.n_executions <= 3 + 8
    assert not hangs.exact
    assert not hasty.timed_out
    assert hasty.exit_code != 124
    assert len(others) == 10


def test_ctrl_c_keeps_what_is_finished_and_leaves_no_process(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done == 12:
            raise KeyboardInterrupt

    before = children()  # such as the resource tracker that another test started
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "a", executor=local(2), report=interrupt)
    assert children() == before
    resumed: list[Progress] = []
    make(tmp_path / "a", report=resumed.append)
    assert resumed[0].kept == 12
    make(tmp_path / "whole")
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def children() -> list[str]:
    task = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    return task.read_text().split()


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from support.dataset_fakes import open_fake, plan, interspersed, sample
from shioenv.dataset.generate import run
from shioenv.execution.local import BATCH, Crew, LocalExecutor
from shioenv.execution.schedule import Schedule

stream = interspersed({{n: sample("echo", "slow", f"n{{n}}", "x") for n in range(0, 5000, 7)}})
run({directory!r}, plan(), stream, count={count}, system={directory!r},
    executor=LocalExecutor(2, opener=open_fake), report=lambda p: print(p.done, flush=True))
"""


def start(directory: Path, count: int) -> subprocess.Popen[bytes]:
    script = SCRIPT.format(tests=TESTS, directory=str(directory), count=count)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, bufsize=0)


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def is_gone(pid: int) -> bool:
    """Whether the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def assert_gone(pids: list[int]) -> None:
    wait_until(
        lambda: all(map(is_gone, pids)),
        lambda: f"the end of {[pid for pid in pids if not is_gone(pid)]}",
    )


@NIGHTLY
def test_killed_at_any_point_and_run_again_gives_the_same_bytes(tmp_path: Path) -> None:
    count = 1150
    whole = start(tmp_path / "whole", count)
    whole.communicate(timeout=60)
    for moment in (0, 3, 400, 950, 999):
        process = start(tmp_path / "a", count)
        assert process.stdout is not None
        seen = b""
        while seen.count(b"\n") <= moment:
            data = process.stdout.read(4096)
            if not data:
                break
            seen += data
        workers = workers_of(process)
        process.kill()
        process.communicate()
        assert_gone(workers)
    final = start(tmp_path / "a", count)
    final.communicate(timeout=60)
    assert final.returncode == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


@NIGHTLY
def test_killed_workers_are_replaced(tmp_path: Path) -> None:
    process = start(tmp_path / "a", 300)
    assert process.stdout is not None
    seen, killed = b"", 0
    while data := process.stdout.read(4096):
        seen += data
        if seen.count(b"\n") > 50 * (killed + 1) and killed < 4:
            for pid in workers_of(process)[: 1 + killed % 2]:
                os.kill(pid, signal.SIGKILL)
            killed += 1
    process.communicate()
    assert process.returncode == 0
    assert killed == 4
    start(tmp_path / "whole", 300).communicate(timeout=60)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def test_two_generators_do_not_share_a_directory(tmp_path: Path) -> None:
    process = start(tmp_path / "a", 2000)
    assert process.stdout is not None
    process.stdout.read(1)
    with pytest.raises(DatasetBusyError):
        make(tmp_path / "a")
    process.kill()
    process.communicate()
