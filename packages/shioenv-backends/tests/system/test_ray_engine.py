"""Datasets made on Ray: the same bytes after failures of nodes and of the generator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset.generate import Progress, Summary, generate
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.domain.record import NAMES
from shioenv.errors import GenerationError, SystemNotBuiltError
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import LANES, Lane
from shioenv.execution.local import LocalExecutor
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing
from shioenv_backends.ray_executor import RayExecutor
from support.nightly import NIGHTLY
from support.paths import ROOT
from support.waiting import wait_until

COUNT, SEED, BUDGET = 24, 11, 4
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}

pytestmark = [
    pytest.mark.usefixtures("system"),
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a dataset by two processes of this machine."""
    directory = tmp_path_factory.mktemp("datasets") / "whole"
    generate(
        directory,
        count=COUNT,
        executor=LocalExecutor(2),
        drawing=Drawing(seed=SEED),
        scoring=Scoring(budget=BUDGET),
    )
    return directory


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster whose head has no processor; nodes are added and killed by the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_worker_niceness", "RAY_worker_oom_score_adjustment"):
            patch.setenv(name, "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
        try:
            yield made
        finally:
            made.shutdown()


def make(
    directory: Path,
    cluster: Any,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Summary, list[str]]:
    """Make the dataset on the cluster; return it and the messages."""
    notes: list[str] = []

    def listen(progress: Progress) -> None:
        if progress.note:
            notes.append(progress.note)
        report(progress)

    made = generate(
        directory,
        count=COUNT,
        drawing=Drawing(seed=SEED),
        scoring=Scoring(budget=BUDGET),
        executor=RayExecutor(address=cluster.address),
        report=listen,
    )
    return made, notes


def assert_same(one: Path, other: Path) -> None:
    """Compare byte for byte; volatile records only by number, input and arguments."""
    lines = [path.read_bytes().splitlines() for path in map(shard, (one, other))]
    pairs = list(zip(read_records(one), read_records(other), *lines, strict=True))
    assert len(pairs) == COUNT
    for a, b, line, other_line in pairs:
        assert (a.session_id, a.input, a.input_args) == (b.session_id, b.input, b.input_args)
        if not (a.volatile or b.volatile):
            assert line == other_line, [n for n in NAMES if getattr(a, n) != getattr(b, n)]
    assert sum(a.volatile for a, *_ in pairs) < COUNT / 2
    assert read_manifest(one).plan == read_manifest(other).plan
    assert [s.inputs_sha256 for s in read_manifest(one).shards] == [
        s.inputs_sha256 for s in read_manifest(other).shards
    ]
    report = verify(other)
    assert report.ok, report.problems


def shard(directory: Path) -> Path:
    return directory / "data" / "00000.ndjson"


def marked(mark: str) -> list[Path]:
    """Return the processes with this in their environment."""
    return [p for p in Path("/proc").glob("[0-9]*") if mark.encode() in environment(p)]


def assert_gone(mark: str) -> None:
    """Check that after at most 15 seconds no process has this in its environment."""
    wait_until(lambda: not marked(mark), lambda: f"the end of {marked(mark)}", seconds=15)


def environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return []


class _StopError(Exception):
    pass


def stop_at_ten(progress: Progress) -> None:
    if progress.done >= 10:
        raise _StopError


SCRIPT = f"""
import sys
from shioenv.dataset.generate import generate
from shioenv_backends.ray_executor import RayExecutor
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
generate(sys.argv[1], count={COUNT}, drawing=Drawing(seed={SEED}),
         scoring=Scoring(budget={BUDGET}), executor=RayExecutor(2),
         report=lambda p: print(p.note or p.done, flush=True))
"""


@NIGHTLY
def test_a_killed_node_costs_no_record_and_one_that_comes_later_goes_on(
    whole: Path, tmp_path: Path, cluster: Any
) -> None:
    """One process of this machine begins it; then one node works, which is killed and replaced."""
    with pytest.raises(_StopError):
        generate(
            tmp_path / "a",
            count=COUNT,
            executor=LocalExecutor(1),
            report=stop_at_ten,
            drawing=Drawing(seed=SEED),
            scoring=Scoring(budget=BUDGET),
        )
    (tmp_path / "empty").mkdir()
    bad = cluster.add_node(**NODE, env_vars={"SHIOENV_CACHE": str(tmp_path / "empty")})
    nodes = [cluster.add_node(**NODE, env_vars={"SHIOENV_TEST": str(tmp_path)})]

    def change(progress: Progress) -> None:
        # at the first record, while the node has others in work
        if progress.done > 10 and len(nodes) == 1:
            nodes.append(cluster.add_node(**NODE))
            # all its processes: after Ray's own kill the actor still answers for a second or two
            for path in marked(f"SHIOENV_TEST={tmp_path}"):
                with suppress(ProcessLookupError):  # it went with its parent
                    os.kill(int(path.name), signal.SIGKILL)
            cluster.remove_node(nodes[0], allow_graceful=False)

    try:
        made, notes = make(tmp_path / "a", cluster, report=change)
        cluster.remove_node(nodes[1])
        assert 0 < made.new <= COUNT - 10
        assert made.restarts == 1
        assert made.retried >= 1
        assert sum("is ready (workers: 1, Linux" in note for note in notes) == 2, notes
        assert sum("is lost" in note for note in notes) == 1, notes
        assert_same(whole, tmp_path / "a")
        assert read_manifest(tmp_path / "a").kernels == read_manifest(whole).kernels
        left_out = [note for note in notes if "is excluded" in note]
        assert len(left_out) == 1, notes
        assert "the system debian-12 has not been built" in left_out[0]
        assert "shioenv system build debian-12" in left_out[0]
        with pytest.raises(SystemNotBuiltError):
            make(tmp_path / "b", cluster)
    finally:
        cluster.remove_node(bad)


DEADLY = 3


def kills_its_node(lane: Lane, task: tuple[int, str]) -> int:
    """Kill the actor of the node, which is the parent of the node's workers."""
    if task[0] == DEADLY:
        os.kill(os.getppid(), signal.SIGKILL)
    return task[0]


def open_nothing(system: str, limits: Limits) -> Any:
    """A fake of a sandbox that no task uses."""
    return nullcontext()


@NIGHTLY
def test_a_task_that_kills_its_node_each_time_is_the_one_that_is_named(cluster: Any) -> None:
    imported = f"{Path(__file__).parent}:{ROOT / 'tests'}"
    node = cluster.add_node(**NODE, env_vars={"PYTHONPATH": imported})
    job = NumberedJob(kills_its_node, lanes=LANES)
    tasks = [(number, f"input {number}") for number in range(3 * LANES)]
    done: set[int] = set()
    try:
        with RayExecutor(address=cluster.address, opener=open_nothing) as executor:
            with pytest.raises(GenerationError, match=rf"task {DEADLY} failed") as error:
                done.update(number for number, _ in executor.map(job, tasks))
            assert error.value.hint == f"its input: input {DEADLY}"
    finally:
        cluster.remove_node(node)
    assert DEADLY not in done


@NIGHTLY
def test_ctrl_c_ends_everything_loses_nothing_and_another_engine_goes_on(
    whole: Path, tmp_path: Path
) -> None:
    before = set(Path("/tmp").glob("ray*"))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "a")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SHIOENV_TEST": str(tmp_path)},
        start_new_session=True,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line.strip())
        if line.strip() == "12":
            break
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, (said, errors)
    assert errors.startswith("Traceback")
    assert errors.endswith("\nKeyboardInterrupt\n")
    assert_gone(f"SHIOENV_TEST={tmp_path}")
    assert set(Path("/tmp").glob("ray*")) == before
    kept: list[int] = []
    generate(
        tmp_path / "a",
        count=COUNT,
        executor=LocalExecutor(1),
        report=lambda progress: kept.append(progress.kept),
        drawing=Drawing(seed=SEED),
        scoring=Scoring(budget=BUDGET),
    )
    assert kept[0] >= 12
    assert_same(whole, tmp_path / "a")
