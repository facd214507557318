"""A dataset's bytes depend neither on the order of arriving records nor on a kill."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.dataset import manifest as manifest_module
from shioenv.dataset import store as store_module
from shioenv.dataset.manifest import Plan
from shioenv.dataset.store import Store
from shioenv.dataset.verify import verify
from shioenv.domain.record import Effect, Record, ScoredSegment, encode
from shioenv.domain.runner import ScriptedRunner
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.effort import Line
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing

PLAN = Plan(
    system="s",
    system_digest="d",
    grammar_digest="g",
    limits=Limits(),
    version="1",
    drawing=Drawing(
        sampler="gcs",
        seed=1,
        commands=("echo",),
        start_directories=("/",),
        horizon=12,
        composite_share=0.25,
        max_segments=3,
    ),
    scoring=Scoring(budget=8, noise_runs=3),
)
SIZE = 7
"""Records of a shard here: small, so that a few records make several."""


def line(number: int) -> Line:
    made = Record(
        session_id=number,
        input=f"cd /; echo {'é' * (number % 3)}{number}",
        input_args=["echo", f"{'é' * (number % 3)}{number}"],
        exit_code=0,
        output="\n" * number,
        context_patch="[]",
        irreducibility=1.0,
        irreducibility_strict=1.0,
        necessary=1.0,
        exact=True,
        standard_error=0.0,
        n_arguments=1,
        n_executions=4,
        segments=[
            ScoredSegment(
                command="echo", n_arguments=1, irreducibility=1.0, irreducibility_strict=1.0,
                necessary=1.0,
                arguments=[Effect(leave_one_out=True, channel="output", contribution=1.0)],
            )
        ],
        stdout="",
        stderr="",
        cwd="/",
        system="s",
        sampler="gcs",
    )  # fmt: skip
    return Line(number, encode(made), made.volatile, made.n_executions)


def attempt(
    directory: Path, count: int, order: Sequence[int], stop: int, compression: str | None
) -> None:
    """Add records in this order, `stop` of them."""
    asked = replace(PLAN, compression=compression)
    with Store(directory, asked, count, kernel="k") as store:
        for number, cwd in store.missing_contexts():
            store.keep_context(number, ScriptedRunner().context(cwd))
        missing = set()
        for number in range(count):
            text = f"{'é' * (number % 3)}{number}"
            if store.accept(number, f"cd /; echo {text}", ["echo", text]):
                missing.add(number)
        for number in [one for one in order if one in missing][:stop]:
            store.append(line(number))


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 25),
    attempts=st.lists(st.tuples(st.randoms(use_true_random=False), st.integers(0, 12)), max_size=4),
    torn=st.integers(0, 500),
    compression=st.sampled_from([None, "zstd"]),
)
def test_interrupted_in_any_order_and_torn_anywhere_gives_the_same_bytes(
    count: int, attempts: list[tuple[object, int]], torn: int, compression: str | None
) -> None:
    with (
        patch.object(store_module, "SHARD_RECORDS", SIZE),
        patch.object(manifest_module, "SHARD_RECORDS", SIZE),
        patch("shioenv.dataset.verify.SHARD_RECORDS", SIZE),
        tempfile.TemporaryDirectory() as scratch,
    ):
        whole, directory = Path(scratch, "whole"), Path(scratch, "dataset")
        attempt(whole, count, range(count), count, compression)
        for random, stop in attempts:
            order = list(range(count))
            random.shuffle(order)  # type: ignore[attr-defined]
            attempt(directory, count, order, stop, compression)
            for journal in sorted(directory.glob("data/*.journal"))[:1]:
                os.truncate(journal, max(0, journal.stat().st_size - torn))
        attempt(directory, count, range(count), count, compression)
        assert contents(directory) == contents(whole)
        report = verify(directory)
        assert report.ok, report.problems
