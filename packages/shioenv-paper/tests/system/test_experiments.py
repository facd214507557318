"""Every experiment at a small scale on the real system, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shioenv.dataset.generate import generate
from shioenv.errors import DatasetMismatchError, GenerationError
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import Lane
from shioenv.execution.local import LocalExecutor
from shioenv.irreducibility.scoring import THE_PAPERS
from shioenv.synthesis.drawing import Drawing
from shioenv_eval.suite import write_suite
from shioenv_eval.suite_recorder import recorded_suite
from shioenv_paper import regimes
from shioenv_paper.experiment_journal import JOURNAL
from shioenv_paper.experiment_output import read_columns
from shioenv_paper.regimes import POOLS, REGIMES
from shioenv_paper.setting import ExperimentSetting
from shioenv_paper.training_sets import COMPOSITES
from support.needs import needs
from support.nightly import NIGHTLY
from support.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("system"),
    pytest.mark.xdist_group("experiments"),  # one directory for all
]

FILES = {"plot.png", "plot.svg", "run.json", "table.md"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all, so that they share executions."""
    return tmp_path_factory.mktemp("experiments")


def command(name: str, out: Path, *options: str) -> list[str]:
    program = [sys.executable, "-m", "shioenv.cli.main", "experiment", name]
    return [*program, "--out", str(out), "--json", *options]


def answer(name: str, out: Path, *options: str) -> dict[str, Any]:
    """Return the experiment's JSON result, after checking its files."""
    done = subprocess.run(command(name, out, *options), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    directory = out / name
    assert found.pop("directory") == str(directory)
    assert found == json.loads((directory / "run.json").read_text())
    assert set(found["files"]) >= FILES
    assert f"experiment {name} --out {out}" in found["command"]
    assert len(found["system"]["digest"]) == 64
    return found


def test_sampling_efficiency_then_estimators(out: Path) -> None:
    size = ("--count", "1", "--max-arguments", "4", "--estimates", "2", "--workers", "1")
    found = answer("sampling-efficiency", out, *size)
    assert found["counts"]["by number of arguments"] == {"2": 4, "3": 4, "4": 4}
    errors = read_columns(out / "sampling-efficiency" / "errors.parquet")
    covered = [
        error
        for n, budget, error in zip(
            errors["n"], errors["budget"], errors["absolute_error"], strict=True
        )
        if budget >= 2**n - 1
    ]
    assert len(covered) > 100
    assert max(covered) == 0
    again = answer("estimators", out, *size)
    assert again["counts"]["executed by an earlier call"] == 12


def assert_scored_alike(directory: Path, least: int) -> None:
    """Executed again, records have the scores they had: the same sub-inputs are drawn."""
    scores, rules = (read_columns(directory / f"{name}.parquet") for name in ("scores", "rules"))

    def scored(columns: dict[str, list[Any]], score: str) -> dict[tuple[str, int], float]:
        keys = zip(columns["sampler"], columns["session_id"], strict=True)
        return dict(zip(keys, columns[score], strict=True))

    had, has = scored(scores, "irreducibility"), scored(rules, "R*")
    assert len(has) >= least
    assert has == {key: pytest.approx(had[key]) for key in has}


@NIGHTLY
def test_irreducibility_by_length(out: Path) -> None:
    size = ("--count", "26", "--budget", "3", "--workers", "1")
    found = answer("irreducibility-by-length", out, *size)
    assert {one["inputs"] for one in found["counts"].values()} == {26}
    scores = read_columns(out / "irreducibility-by-length" / "scores.parquet")
    assert sorted(set(scores["n_arguments"])) == list(range(13))
    assert set(scores["sampler"]) == {"gcs", "ucs", "ucs-universal"}
    operands = list(zip(scores["n_operands"], scores["n_arguments"], strict=True))
    assert all(some <= every for some, every in operands)
    assert 0 < sum(some for some, _ in operands) < sum(every for _, every in operands)
    assert_scored_alike(out / "irreducibility-by-length", 40)


@NIGHTLY
def test_training_sets(out: Path) -> None:
    found = answer("training-sets", out, "--count", "8", "--budget", "3", "--workers", "1")
    assert {one["with a score"] for one in found["counts"].values()} == {8}
    sets = found["summary"]
    assert sets["GCS, R* ≥ 0"]["inputs"] == 8
    assert sets["GCS, R* ≥ 0.5"]["inputs"] + sets["GCS, R* ≤ 0.5"]["inputs"] >= 8
    assert_scored_alike(out / "training-sets", 12)


@NIGHTLY
def test_policies(out: Path) -> None:
    found = answer("policies", out, "--count", "12", "--budget", "4", "--workers", "1")
    assert list(found["counts"]) == ["paper", "people", "mixed"]
    assert {one["inputs"] for one in found["counts"].values()} == {12}
    for policy in found["counts"]:
        scores = read_columns(out / "policies" / f"scores-{policy}.parquet")
        assert len(scores["irreducibility"]) == 12
    texts = (out / "policies" / "table.md").read_text()
    assert texts.count("all with a score") == 3


def asked_and_pool(out: Path, texts: dict[str, str], count: int) -> tuple[Path, Path]:
    """A recorded suite of these inputs, and a dataset of so many records with scores."""
    lines, suite, pool = out / "asked.jsonl", out / "asked.suite", out / "pool"
    inputs = [{"input": text, "steps": steps} for text, steps in texts.items()]
    lines.write_text("".join(f"{json.dumps(each)}\n" for each in inputs))
    with recorded_suite(lines, seconds_apart=0, workers=1, runs=2) as recorded:
        write_suite(recorded, suite)
    drawing = Drawing(policy="paper", composite_share=COMPOSITES)
    generate(pool, count=count, drawing=drawing, scoring=replace(THE_PAPERS, budget=2))
    return suite, pool


@NIGHTLY
def test_regimes(out: Path) -> None:
    asked = {"ls": "single", "cat README.md": "single", "ls | wc -l": "multi"}
    suite, pool = asked_and_pool(out, asked, 45)
    options = ["--suite", str(suite), "--memory-sizes", "30", "--questions", "30"]
    for name in POOLS:
        options += ["--pool", f"{name}={pool}"]
    found = answer("regimes", out, *options)
    rows = read_columns(out / "regimes" / "rows.parquet")
    assert set(rows["model"]) == {"memory"}
    assert set(rows["regime"]) == set(REGIMES)
    assert set(rows["size"]) == {30}
    assert set(rows["steps"]) == {"single", "multi"}
    assert max(rows["records"]) <= 30
    assert len(list(out.glob("data/regimes/*/model.json"))) == len(REGIMES)
    assert len(found["summary"]) == 2 * len(REGIMES)
    table = (out / "regimes" / "table.md").read_text()
    compared = table.partition("## Differences between regimes")[2]
    assert "gcs - ucs | +0.000 [+0.000, +0.000]" in compared, "of one pool: the same records"


@needs("torch", "transformers")
def test_regimes_of_sequence_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One regime, since each is trained; of enough records that one of them judges."""
    from shioenv_model.training import sequence as training

    monkeypatch.setattr(regimes, "REGIMES", {"ucs": REGIMES["ucs"]})
    suite, pool = asked_and_pool(tmp_path, {"pwd": "single"}, 150)
    plan = training.TrainingPlan(size="tiny", steps=2, every=1, batch_tokens=512)
    setting = ExperimentSetting(out=tmp_path / "out", executor=LocalExecutor(1))

    def run(plan: training.TrainingPlan = plan) -> tuple[list[str], list[int]]:
        results = regimes.run_regimes(
            setting, suites=[suite], pools=dict.fromkeys(("ucs", "gcs", "people"), pool),
            sizes=[150], questions=30, training=regimes.RegimeTraining(plan, 1),
        )  # fmt: skip
        models = sorted(setting.data.glob("regimes/*/seq2seq-tiny/model/model.json"))
        times = [model.stat().st_mtime_ns for model in models]
        return read_columns(results.directory / "rows.parquet")["model"], times

    first = run()
    assert first[0] == ["memory", "seq2seq tiny"]
    assert len(first[1]) == 1
    assert run() == first  # nothing is trained again
    longer = msgspec.structs.replace(plan, steps=3)
    with pytest.raises(DatasetMismatchError, match="steps: 2 in the directory, 3 requested"):
        run(longer)


@needs("torch", "tokenizers")
@NIGHTLY
def test_networks_are_packed_trained_without_this_project_and_judged(tmp_path: Path) -> None:
    """The two minutes on a GPU's place: each regime's network, on the CPU and of small size."""
    suite, pool = asked_and_pool(tmp_path, {"pwd": "single", "ls | wc -l": "multi"}, 40)
    out = tmp_path / "out"
    options = ["--suite", str(suite), "--records", "30"]
    pools = [word for name in ("ucs", "gcs", "nl2cmd") for word in ("--pool", f"{name}={pool}")]
    done = subprocess.run(
        command("networks", out, *options, *pools), capture_output=True, text=True, check=True
    )
    packed = json.loads(done.stdout)
    assert packed["questions"] == 2
    assert list(packed["counts"]) == ["ucs", "gcs", "gcs-high", "gcs-low", "nl2cmd"]
    small = {
        "start": 0.5, "run": 0.1, "batch": 2, "width": 1024, "longest": 8,
        "shape": {"width": 32, "layers": 1, "heads": 2},
    }  # fmt: skip
    there = [sys.executable, "-I", str(packed["directory"]), str(tmp_path / "back")]
    subprocess.run([*there, "--device", "cpu", "--plan", json.dumps(small)], check=True)
    results = ("--results", str(tmp_path / "back" / "results.json"))
    answer("networks", out, *options, *results)
    rows = read_columns(out / "networks" / "rows.parquet")
    assert [*dict.fromkeys(rows["regime"])] == ["mixture", *packed["counts"]]
    assert len(rows["regime"]) == 2 * 10, "nine runs and the start, single and multi"


@NIGHTLY
def test_determinism(out: Path) -> None:
    found = answer("determinism", out, "--count", "40", "--runs", "3", "--seed", "3")
    assert found["summary"]["identical or explained, of all inputs"] == 1
    inputs = read_columns(out / "determinism" / "inputs.parquet")
    assert sum(inputs["identical"]) >= 30


@NIGHTLY
def test_a_killed_experiment_goes_on(tmp_path: Path) -> None:
    size = ("--count", "1", "--max-arguments", "5", "--estimates", "1", "--workers", "1")
    process = subprocess.Popen(
        command("sampling-efficiency", tmp_path, *size),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    journal = tmp_path / "data" / "exact" / JOURNAL
    wait_until(
        lambda: process.poll() is not None or (journal.exists() and len(_lines(journal)) > 4),
        "five lines of the journal",
    )
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = _lines(journal)
    assert len(kept) > 4
    found = answer("sampling-efficiency", tmp_path, *size)
    assert _lines(journal)[: len(kept)] == kept
    executed = [line for line in kept[1:] if b'"passed"' not in line]
    assert found["counts"]["executed by an earlier call"] == len(executed)
    assert found["counts"]["inputs"] == 16


def _lines(path: Path) -> list[bytes]:
    """The whole ones."""
    return path.read_bytes().split(b"\n")[:-1]


def deadly(lane: Lane, task: tuple[int, str]) -> int:
    number, once = task
    assert lane.run("echo x").output == b"x\n"
    if number == 2 and not (once and Path(once).exists()):
        Path(once or "/dev/null").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * number


def answers(numbers: list[int], once: str = "") -> dict[int, int]:
    """Return the results for the numbers; 2 kills its process every time, or until a file
    exists."""
    with LocalExecutor(1) as executor:
        return dict(
            executor.map(NumberedJob(deadly, system="debian-12"), ((n, once) for n in numbers))
        )


@NIGHTLY
def test_what_a_process_that_dies_had_is_begun_again_and_one_that_kills_all_is_named(
    tmp_path: Path,
) -> None:
    assert answers([1, 2, 3], str(tmp_path / "once")) == {1: 10, 2: 20, 3: 30}
    with pytest.raises(GenerationError, match="task 2 failed in 5 attempts"):
        answers([1, 2, 3])
