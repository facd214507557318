"""Datasets of the real system: the same bytes, even if the processes that make them are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults import descendants
from shioenv.dataset.generate import Summary, add_scores, generate
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.verify import replay, verify
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import NAMES
from shioenv.errors import (
    DatasetMismatchError,
    UnknownGrammarError,
    UnknownSamplerError,
)
from shioenv.execution.local import LocalExecutor
from shioenv.files.durable import cache_directory
from shioenv.irreducibility.scoring import UNSCORED, Scoring
from shioenv.recording.execution_cache import CACHE_BYTES
from shioenv.synthesis.drawing import Drawing
from support.nightly import LARGER, NIGHTLY, scaled
from support.waiting import wait_until

COUNT, SEED, BUDGET = 20, 11, 8
COMMANDS = (
    "cat", "chmod", "cp", "cut", "date", "df", "find", "grep", "ls", "mv", "ps", "sort", "touch",
)  # fmt: skip
DRAWING = Drawing(seed=SEED, commands=COMMANDS)
"""Of some commands: each process that is started reads their grammars."""

pytestmark = [
    pytest.mark.usefixtures("system"),
    pytest.mark.xdist_group("generate"),  # one dataset for all
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset in one go by one worker."""
    directory = tmp_path_factory.mktemp("datasets") / "whole"
    summary = generate(
        directory,
        count=COUNT,
        executor=LocalExecutor(1),
        drawing=DRAWING,
        scoring=Scoring(budget=BUDGET),
    )
    assert (summary.new, summary.retried, summary.restarts) == (COUNT, 0, 0)
    return directory


def assert_same(one: Path, other: Path) -> None:
    """Compare byte for byte; volatile records only by number, input and arguments."""
    pairs = list(zip(read_records(one), read_records(other), strict=True))
    assert len(pairs) == COUNT
    for a, b in pairs:
        assert (a.session_id, a.input, a.input_args) == (b.session_id, b.input, b.input_args)
        if not (a.volatile or b.volatile):
            assert a == b, [name for name in NAMES if getattr(a, name) != getattr(b, name)]
    assert sum(a.volatile for a, _ in pairs) < COUNT / 2


def test_two_workers_make_what_one_makes(whole: Path, tmp_path: Path) -> None:
    generate(
        tmp_path / "two",
        count=COUNT,
        executor=LocalExecutor(2),
        drawing=DRAWING,
        scoring=Scoring(budget=BUDGET),
    )
    assert_same(whole, tmp_path / "two")
    report = verify(tmp_path / "two")
    assert report.ok, report.problems


def test_records_say_what_happens_again(whole: Path) -> None:
    found = replay(whole, 10, seed=1)
    assert found.ok, found.differing
    assert found.replayed == 10


def test_a_dataset_has_more_than_one_kind_of_record(whole: Path) -> None:
    found = list(read_records(whole))
    assert len(found) == COUNT
    assert len({one.segments[0].command for one in found}) > 5
    assert any(one.context_patch != "[]" for one in found)
    assert not any(one.timed_out for one in found)
    scores = [one.irreducibility for one in found if one.irreducibility is not None]
    assert 0.2 < sum(scores) / len(scores) < 1


def test_other_settings_are_refused(whole: Path) -> None:
    with pytest.raises(DatasetMismatchError, match="seed: 11 in the dataset, 12 requested"):
        generate(
            whole,
            count=COUNT,
            drawing=replace(DRAWING, seed=12),
            scoring=Scoring(budget=BUDGET),
        )
    with pytest.raises(DatasetMismatchError, match="budget: 8 in the dataset, 9 requested"):
        generate(whole, count=COUNT, drawing=DRAWING, scoring=Scoring(budget=9))
    with pytest.raises(DatasetMismatchError, match=r"grammar\.commands: "):
        generate(
            whole,
            count=COUNT,
            drawing=Drawing(seed=SEED, commands=("ls", "df")),
            scoring=Scoring(budget=BUDGET),
        )


def test_scores_added_later_are_those_of_a_run_with_scores(whole: Path, tmp_path: Path) -> None:
    bare, scored = tmp_path / "bare", tmp_path / "scored"
    generate(
        bare,
        count=COUNT,
        drawing=DRAWING,
        scoring=UNSCORED,
        executor=LocalExecutor(2),
    )
    assert all(record.irreducibility is None for record in read_records(bare))
    assert verify(bare).ok
    add_scores(bare, scored, scoring=Scoring(budget=BUDGET), executor=LocalExecutor(1))
    assert verify(scored).ok
    assert_same(whole, scored)


def test_unknown_names_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UnknownSamplerError):
        generate(tmp_path / "a", count=1, drawing=Drawing(sampler="gsc"))
    with pytest.raises(UnknownGrammarError):
        generate(tmp_path / "a", count=1, drawing=Drawing(commands=("lss",)))
    assert not (tmp_path / "a").exists()


SCRIPT = f"""
import sys
from shioenv.dataset.generate import generate
from shioenv.execution.local import LocalExecutor
from shioenv.irreducibility.scoring import UNSCORED, Scoring
from shioenv.synthesis.drawing import Drawing
generate(sys.argv[1], count={COUNT}, drawing=Drawing(seed={SEED}, commands={COMMANDS}),
         scoring=Scoring(budget={BUDGET}), executor=LocalExecutor(2),
         report=lambda p: print(p.done, flush=True))
"""


def start(directory: Path, script: str = SCRIPT) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[bytes], done: int) -> None:
    """Read progress lines up to this number of records, and none beyond."""
    assert process.stdout is not None
    told = b""
    while line := process.stdout.readline():
        told += line
        if int(line) >= done:
            return
    raise AssertionError(f"it ended: {told!r}")


def processes_below(process: subprocess.Popen[bytes]) -> list[int]:
    """Wait for processes below it and return them; none where it ends before.

    It has none yet where the previous run kept so many records.
    """
    wait_until(lambda: descendants(process.pid) or process.poll() is not None, "a process below")
    return descendants(process.pid)


def kill_one(pid: int, chosen: int) -> bool:
    """Kill one of the processes below this one. Those of inputs may have ended meanwhile, and in
    the end all have.
    """
    while victims := descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(victims[chosen % len(victims)], signal.SIGKILL)
            return True
    return False


def assert_gone(pids: list[int]) -> None:
    assert pids
    wait_until(
        lambda: not any(map(alive, pids)),
        lambda: f"the end of {[*filter(alive, pids)]}",
        seconds=15,
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@NIGHTLY
def test_killed_and_run_again(whole: Path, tmp_path: Path) -> None:
    killed = 0
    for done in (1, 6, 11):
        process = start(tmp_path / "a")
        wait_for(process, done)
        everything = processes_below(process)
        process.kill()
        process.communicate()
        if everything:
            assert_gone(everything)
            killed += 1
    assert killed
    generate(
        tmp_path / "a",
        count=COUNT,
        executor=LocalExecutor(2),
        drawing=DRAWING,
        scoring=Scoring(budget=BUDGET),
    )
    assert_same(whole, tmp_path / "a")
    assert verify(tmp_path / "a").ok


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for shared executions that has the built systems and no executions."""
    real, own = cache_directory(), tmp_path / "cache"
    own.mkdir()
    for entry in real.iterdir():
        if entry.name not in ("executions", "lock"):
            (own / entry.name).symlink_to(entry)
    monkeypatch.setenv("SHIOENV_CACHE", str(own))
    return own / "executions"


def shared(directory: Path, workers: int) -> Summary:
    return generate(
        directory,
        count=COUNT,
        executor=LocalExecutor(workers, cache_bytes=CACHE_BYTES),
        drawing=DRAWING,
        scoring=Scoring(budget=BUDGET),
    )


@NIGHTLY
def test_what_is_recorded_does_not_depend_on_shared_executions(
    whole: Path, tmp_path: Path, own_cache: Path
) -> None:
    """Cold with two workers and kills in between, warm with one, then with a damaged file."""
    sharing = SCRIPT.replace("LocalExecutor(2)", f"LocalExecutor(2, cache_bytes={CACHE_BYTES})")
    assert sharing != SCRIPT
    process = start(tmp_path / "cold", sharing)
    wait_for(process, 9)
    process.kill()
    process.communicate()
    shared(tmp_path / "cold", 2)
    assert_same(whole, tmp_path / "cold")

    warm = shared(tmp_path / "warm", 1)
    assert_same(whole, tmp_path / "warm")
    # the newest result of the killed process was lost
    assert warm.effort.found > warm.effort.asked / 5 > 0
    assert warm.effort.trouble is None

    (file,) = own_cache.glob("*.sqlite")
    file.write_bytes(b"\0garbage" * 9000)
    damaged = shared(tmp_path / "damaged", 2)
    assert_same(whole, tmp_path / "damaged")
    assert damaged.effort.trouble is not None
    assert (damaged.effort.found, damaged.restarts) == (0, 0)


def test_killed_workers_and_sandboxes_are_replaced(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path / "a")
    killed = 0
    for done in (2, 6, 10, 14):
        wait_for(process, done)
        killed += kill_one(process.pid, done)
    assert killed
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert_same(whole, tmp_path / "a")


@NIGHTLY
def test_ctrl_c_ends_everything_and_loses_nothing(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path / "a")
    wait_for(process, 7)
    everything = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert_gone(everything)
    kept = []
    generate(
        tmp_path / "a",
        count=COUNT,
        executor=LocalExecutor(1),
        report=lambda progress: kept.append(progress.kept),
        drawing=DRAWING,
        scoring=Scoring(budget=BUDGET),
    )
    assert kept[0] >= 7
    assert_same(whole, tmp_path / "a")


@LARGER
def test_rows_of_inputs_are_recorded_one_after_the_other(tmp_path: Path) -> None:
    """Each patch applies to the context after those before it; scores can come later."""
    count = scaled(8, 12)
    drawing, one = (
        Drawing(seed=9, commands=COMMANDS, session_length=4, composite_share=0.0),
        LocalExecutor(1),
    )
    scored, plain, added = (tmp_path / name for name in ("scored", "plain", "added"))
    generate(scored, count=count, drawing=drawing, scoring=Scoring(budget=4), executor=one)
    generate(plain, count=count, drawing=drawing, scoring=UNSCORED)
    assert not verify(scored).problems
    records = list(read_records(scored))
    assert [len(record.history) for record in records] == [0, 1, 2, 3] * (count // 4)
    context: dict[str, Any] = {}
    steady = True
    for record in records:
        if not record.history:
            context, steady = dict(read_contexts(scored)[record.cwd].document), True
        steady = steady and not record.volatile
        if steady:
            context = ContextPatch.from_json(record.context_patch).apply(context)
    assert any(record.history and record.context_patch != "[]" for record in records)
    assert not replay(scored, count=4).differing
    assert not replay(plain, count=count).differing, "resident shells record what repetition does"
    add_scores(plain, added, scoring=Scoring(budget=4))
    for whole, later in zip(records, read_records(added), strict=True):
        assert whole.history == later.history
        assert whole == later or whole.volatile
