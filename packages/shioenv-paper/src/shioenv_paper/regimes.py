"""Accuracy of models of each of the paper's five regimes, by number of inputs.

This is Section 4.4 of the paper, with a memory of executed inputs in addition to the paper's
sequence models. Two regimes of ours complement the five. All regimes request equally many inputs.
Regimes that select by a score draw from one GCS pool.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from shioenv.dataset.manifest import finished_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.record import Record
from shioenv.errors import DatasetMismatchError, UsageError
from shioenv.irreducibility.scoring import THE_PAPERS, UNSCORED, Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv_eval.evaluate import Evaluation, answers_beneath, evaluate
from shioenv_eval.report.chart_style import require_libraries
from shioenv_eval.report.markup import Table
from shioenv_eval.report.means import Resampled
from shioenv_eval.suite import Suite, read_suite
from shioenv_model.files import CARD, read_card, write_card
from shioenv_model.memory.index import Index
from shioenv_model.training.material import described, enlarged, world_in
from shioenv_model.training.memory_training import learn, write_memory
from shioenv_model.training.token_examples import Examples
from shioenv_paper.experiment_journal import agree, compare_plans
from shioenv_paper.experiment_output import Findings, columns, experiment
from shioenv_paper.scores import make_dataset
from shioenv_paper.setting import ExperimentSetting
from shioenv_paper.training_sets import COMPOSITES

if TYPE_CHECKING:
    from shioenv_model.training.sequence import TrainingPlan

NAME = "regimes"
MEMORY, SEQ2SEQ = "memory", "seq2seq"
ASKED = "asked.json"
"""The file in a sequence model's run that records its training settings."""

SIZES = (10_000, 30_000)
QUESTIONS = 2000
HALF = 0.5
MISTAKES = 0.1
"""Share of the inputs of `people` that have a mistake, as in the default model."""

STEPS = ("single", "multi")
PARTS = (": EM", ", with exit", ", masked", ", new texts")


def _high(score: float | None) -> bool:
    return score is not None and score >= HALF


def _low(score: float | None) -> bool:
    return score is not None and score <= HALF


REGIMES: Mapping[str, tuple[str, Callable[[Record], bool]]] = {
    "ucs": ("ucs", lambda record: True),
    "gcs": ("gcs", lambda record: True),
    "gcs-high": ("gcs", lambda record: _high(record.irreducibility)),
    "gcs-low": ("gcs", lambda record: _low(record.irreducibility)),
    "gcs-necessary": ("gcs", lambda record: _high(record.necessary)),
    "nl2cmd": ("nl2cmd", lambda record: True),
    "people": ("people", lambda record: True),
}
"""The pool of each regime, and a condition on its records.

Five are those of the paper. Two are ours: `gcs-necessary` has GCS inputs chosen by their share of
necessary arguments, and `people` has inputs drawn from people's usage.
"""

PAIRS = (
    ("gcs-high", "gcs"),
    ("gcs-high", "gcs-low"),
    ("gcs-necessary", "gcs-high"),
    ("gcs", "ucs"),
    ("gcs", "nl2cmd"),
    ("people", "gcs"),
    ("people", "gcs-high"),
)
"""Regimes that are compared input by input.

The questions are: Does a high score help? Does another score select better? Do grammars help?
"""

LIKE = 0.95
"""Minimum ratio of two models' numbers of records for a comparison (our choice)."""

POOLS = ("ucs", "gcs", "nl2cmd", "people")
"""The pools of the regimes. `nl2cmd` cannot be generated: it is given, or left out."""


Choose: TypeAlias = Callable[[], frozenset[int]]
"""Returns the indices of a model's records in their pool; the first call computes them."""


@dataclass(frozen=True, slots=True)
class RegimeTraining:
    """Training settings of the sequence models of each regime, size and seed, from scratch."""

    plan: TrainingPlan
    """The plan's seed is not used: a model has the seed with which its records were drawn."""
    minutes: float
    """Maximum minutes of training of each model."""
    device: str = "cpu"
    """`cpu` or `cuda`."""


@dataclass(frozen=True, slots=True)
class RegimeRow:
    """A model's accuracy on the single or the multi inputs of one suite.

    Shares are 0 to 1.
    """

    model: str
    """`memory`, or `seq2seq` and the size of the network."""
    regime: str
    size: int
    """Number of requested records."""
    records: int
    """Number of distinct records in the model: the pool may hold fewer than `size`."""
    seed: int
    suite: str
    steps: str
    inputs: int
    em: float
    em_low: float
    em_high: float
    em_exit: float
    """EM that also requires the right exit code."""
    em_masked: float
    em_new: float | None
    """EM of the inputs that are not among the records; None if there are none.

    No record with the same start directory has the text of such an input.
    """
    new: int
    """Number of inputs that are not among the records."""
    exit_code: float


@experiment(NAME)
def run_regimes(
    setting: ExperimentSetting,
    *,
    suites: Sequence[Path],
    pools: Mapping[str, Path],
    sizes: Sequence[int] = SIZES,
    seeds: int = 1,
    questions: int = QUESTIONS,
    scoring: Scoring = THE_PAPERS,
    training: RegimeTraining | None = None,
) -> Findings:
    """Create a memory of each regime, size and seed, and evaluate it on all suites.

    With `training`, a sequence model of the same records is trained and evaluated as well. `pools`
    are datasets to draw from, by the names of `POOLS`. Missing pools are generated, except for
    `nl2cmd`. `gcs` is generated until the records on either side of R* = .5 reach the largest size.

    Existing models and answers are reused. Errors: those of `experiment`, `make_dataset`, reading
    and evaluation. DatasetMismatchError if a pool and a suite have different systems, or an
    existing memory has another pool or other `questions`. DatasetMismatchError if an existing
    sequence model has another plan, other minutes or other examples. MissingExtraError without the
    extra `train`. UsageError for two suites with the same name.
    """
    names = [path.stem for path in suites]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"several suites have the file name {', '.join(twice)}, which must identify one",
            hint="rename one of the files",
        )
    needed = ("sklearn", "torch", "transformers") if training else ("sklearn",)
    for library in needed:
        require_libraries("this experiment", "train", library)
    from shioenv_paper import experiment_charts

    asked = [read_suite(path) for path in suites]
    drawn = {"ucs": _ucs, "gcs": scored_gcs, "people": _people}
    found = dict(pools)
    for name, make in drawn.items():
        if name not in found:
            found[name] = make(setting, max(sizes), scoring)
    for path in found.values():
        _check(path, asked)
    rights: dict[RegimeRow, list[bool]] = {}
    for regime, (pool, holds) in REGIMES.items():
        if pool not in found:
            continue
        for seed in range(setting.seed, setting.seed + seeds):
            for size in sizes:
                choose = cache(partial(choose_records, setting, found[pool], holds, size, seed))
                memory = _memory(setting, found[pool], regime, choose, size, seed, questions)
                asks = f"default:{memory}"
                models = [_Model(MEMORY, asks, memory, memory, regime, size, seed)]
                if training is not None:
                    written = _written(setting, found[pool], choose, memory, training, seed)
                    name = f"{SEQ2SEQ} {training.plan.size}"
                    predictor = f"{SEQ2SEQ}:{written / 'model'}"
                    models.append(_Model(name, predictor, written, memory, regime, size, seed))
                for model in models:
                    for path, suite in zip(suites, asked, strict=True):
                        rights.update(_rows(setting, model, path, suite))
    rows = list(rights)
    return Findings(
        title="Accuracy of the models of each regime",
        data={"rows": columns(rows, *RegimeRow.__dataclass_fields__)},
        tables=[
            *(regime_table(rows, name) for name in dict.fromkeys(row.suite for row in rows)),
            difference_table(rights),
        ],
        chart=experiment_charts.draw_regimes(rows),
        counts={name: finished_manifest(path).records for name, path in found.items()},
        parameters={
            "sizes": list(sizes),
            "seeds": seeds,
            "questions": questions,
            "training": training
            and {
                "device": training.device,
                "minutes": training.minutes,
                **msgspec.to_builtins(training.plan),
            },
            "suites": {suite.head.name: suite.head.digest for suite in asked},
            "pools": {name: _origin(path) for name, path in found.items()},
        },
        summary={
            f"{row.model} {row.regime} {row.size} {row.suite} {row.steps}": row.em for row in rows
        },
    )


def _ucs(setting: ExperimentSetting, count: int, scoring: Scoring) -> Path:
    drawing = Drawing(sampler="ucs", policy="paper", composite_share=COMPOSITES)
    return make_dataset(setting, "ucs-unscored", count, drawing, UNSCORED).directory


def _people(setting: ExperimentSetting, count: int, scoring: Scoring) -> Path:
    drawing = Drawing(policy="people", composite_share=COMPOSITES, mistakes=MISTAKES)
    return make_dataset(setting, "people-unscored", count, drawing, UNSCORED).directory


def scored_gcs(setting: ExperimentSetting, count: int, scoring: Scoring) -> Path:
    """Generate a scored pool with `count` records in each half of the scores.

    It is the same dataset as that of `training-sets`, which is reused if it exists.
    """
    drawing = Drawing(sampler="gcs", policy="paper", composite_share=COMPOSITES)
    wanted = 2 * count
    while True:
        dataset = make_dataset(setting, "gcs", wanted, drawing, scoring)
        scores = [one.irreducibility for one in dataset.scores]
        fewest = min(sum(map(_high, scores)), sum(map(_low, scores)))
        if fewest >= count:
            return dataset.directory
        wanted = enlarged(wanted, fewest, count)


def _check(pool: Path, suites: Sequence[Suite]) -> None:
    digest = finished_manifest(pool).plan.system_digest
    others = [
        f"system: {suite.head.name} has {suite.head.system_digest[:12]}, {pool} has {digest[:12]}"
        for suite in suites
        if suite.head.system_digest != digest
    ]
    if others:
        raise DatasetMismatchError(str(pool), others)


def _origin(pool: Path) -> dict[str, Any]:
    """Return the facts that determine a pool's records; a digest represents its inputs."""
    manifest = finished_manifest(pool)
    drawing = manifest.plan.drawing
    return {
        "sampler": drawing.sampler,
        "policy": drawing.policy,
        "seed": drawing.seed,
        "records": manifest.records,
        "inputs": _digest_of([shard.inputs_sha256 for shard in manifest.shards]),
        "system digest": manifest.plan.system_digest,
        "version": manifest.plan.version,
    }


def _digest_of(values: Sequence[str]) -> str:
    return hashlib.sha256("".join(values).encode()).hexdigest()


def _memory(
    setting: ExperimentSetting,
    pool: Path,
    regime: str,
    choose: Choose,
    size: int,
    seed: int,
    questions: int,
) -> Path:
    """Return the directory of a memory with the records of a pool selected by `choose`."""
    directory = setting.data / NAME / f"{regime}-{size}-{seed}"
    directory.mkdir(parents=True, exist_ok=True)
    plan = {"pool": _origin(pool), "regime": regime, "size": size, "seed": seed}
    agree(directory / "plan.json", {**plan, "questions": questions})
    if (directory / CARD).exists():
        return directory

    def told(what: str, done: int, total: int) -> None:
        setting.report(f"{what} of {regime}, {size:,}", done, total)

    chosen = choose()
    records = (record for place, record in enumerate(read_records(pool)) if place in chosen)
    write_memory(directory, _counted(records, told, len(chosen)), world_in(pool)[1])
    figures = learn(directory, questions, seed, told)
    manifest = finished_manifest(pool)
    write_card(
        directory,
        {
            "name": f"{regime}-{size}-{seed}",
            "kind": "memory",
            "system": manifest.plan.system,
            "system_digest": manifest.plan.system_digest,
            "records": len(chosen),
            "learned": figures,
        },
    )
    return directory


def choose_records(
    setting: ExperimentSetting, pool: Path, holds: Callable[[Record], bool], size: int, seed: int
) -> frozenset[int]:
    """Draw the indices of up to `size` records of a pool that satisfy `holds`, by the seed.

    Records with a history are left out. The records of a smaller size are a subset of those of a
    larger one.
    """
    total = finished_manifest(pool).records
    able = [
        place
        for place, record in enumerate(_counted(read_records(pool), setting.report, total))
        if not record.history and holds(record)
    ]
    return frozenset(np.random.default_rng(seed).permutation(able)[:size].tolist())


def _written(
    setting: ExperimentSetting,
    pool: Path,
    choose: Choose,
    memory: Path,
    training: RegimeTraining,
    seed: int,
) -> Path:
    """Return the directory of a sequence model's run, inside `memory` and with the same records."""
    plan = msgspec.structs.replace(training.plan, seed=seed)
    run = memory / f"{SEQ2SEQ}-{plan.size}"
    examples = memory / "examples"
    agree_on_training(run, msgspec.to_builtins(plan), training.minutes)

    def told(what: str, done: int, total: int) -> None:
        setting.report(f"{what} of {memory.name}", done, total)

    from shioenv_model.training.preparing import Shape, prepare
    from shioenv_model.training.sequence import train

    shape = Shape()
    if not examples.exists():
        making = memory / "examples.new"
        shutil.rmtree(making, ignore_errors=True)
        prepare([pool], making, shape, chosen=choose(), report=told)
        making.rename(examples)
    facts = Examples(examples).facts
    made_of = {"shape": msgspec.to_builtins(shape), "material": [described(pool)]}
    compare_plans(examples / "examples.json", facts, made_of)
    if not (run / "model" / CARD).exists():
        train(
            run, Examples(examples), plan,
            device=training.device, minutes=training.minutes, report=told,
        )  # fmt: skip
    return run


def agree_on_training(run: Path, plan: Mapping[str, Any], minutes: float) -> None:
    """Compare the plan of a sequence model with the existing model in its run's directory.

    `plan` holds the fields of a `TrainingPlan`. `minutes` are those of `RegimeTraining`. They are
    saved in the directory, which is created. Errors: DatasetMismatchError for another plan or
    other minutes.
    """
    trained = run / "model"
    if (trained / CARD).exists():
        compare_plans(trained / CARD, read_card(trained).get("plan"), plan)
    run.mkdir(parents=True, exist_ok=True)
    agree(run / ASKED, {"plan": plan, "minutes": minutes})


def _counted(
    records: Iterator[Record], report: Callable[[str, int, int], None], total: int
) -> Iterator[Record]:
    for done, record in enumerate(records, 1):
        yield record
        report("records", done, total)


@dataclass(frozen=True, slots=True)
class _Model:
    """An existing model."""

    name: str
    predictor: str
    directory: Path
    """The directory of its answers."""
    memory: Path
    """The memory of the same records, whose index identifies new inputs."""
    regime: str
    size: int
    seed: int


def _rows(
    setting: ExperimentSetting, model: _Model, path: Path, suite: Suite
) -> Iterator[tuple[RegimeRow, list[bool]]]:
    """Yield a model's accuracy on a suite, and the inputs that it answered right."""
    evaluation = evaluate(
        suite,
        [model.predictor],
        answers_beneath(model.directory, suite),
        workers=setting.executor.workers,
        report=lambda _, done, total, __: setting.report(
            f"answers of {model.name}, {model.regime}, {model.size:,}, {path.stem}", done, total
        ),
    )
    index = Index(model.memory)
    about = RowFacts(model.name, model.regime, model.size, len(index), model.seed, path.stem)
    yield from judged_rows(evaluation, about, index.exact)


@dataclass(frozen=True, slots=True)
class RowFacts:
    """The first fields of a `RegimeRow`."""

    model: str
    regime: str
    size: int
    records: int
    seed: int
    suite: str


def judged_rows(
    evaluation: Evaluation, about: RowFacts, is_known: Callable[[str, str], object]
) -> Iterator[tuple[RegimeRow, list[bool]]]:
    """Yield the accuracy of an evaluation's one predictor, and the inputs that it answered right.

    `is_known` gets the start directory and the text of an input.
    """
    suite = evaluation.suite
    (judged,) = evaluation.predictors
    figures = next(iter(evaluation.document["predictors"].values()))
    for steps in STEPS:
        group = figures[steps]
        if not group["n"]:
            continue
        pairs = [
            (case, bool(marks.em))
            for case, marks in zip(suite.cases, judged.marks, strict=True)
            if case.question.steps == steps
        ]
        new = [
            right
            for case, right in pairs
            if not is_known(case.state(suite.head.start).cwd, case.question.input.strip())
        ]
        em, low, high = group["em"]
        row = RegimeRow(
            **asdict(about),
            steps=steps,
            inputs=group["n"],
            em=em,
            em_low=low,
            em_high=high,
            em_exit=group["em_exit"][0],
            em_masked=group["em_masked"][0],
            em_new=round(sum(new) / len(new), 4) if new else None,
            new=len(new),
            exit_code=group["exit_code"][0],
        )
        yield row, [right for _, right in pairs]


def regime_table(rows: Sequence[RegimeRow], suite: str) -> Table:
    """Return a table with one row per model, with single and multi inputs side by side."""
    lines = []
    chosen = [row for row in rows if row.suite == suite]
    groups: dict[tuple[str, str, int, int], dict[str, RegimeRow]] = {}
    for row in chosen:
        groups.setdefault((row.model, row.regime, row.size, row.seed), {})[row.steps] = row
    for (model, regime, _, seed), own in groups.items():
        cells = [cell for steps in STEPS for cell in _cells(own.get(steps))]
        lines.append((model, regime, f"{next(iter(own.values())).records:,}", str(seed), *cells))
    names = [f"{steps}{what}" for steps in STEPS for what in PARTS]
    return Table(
        f"Suite {suite}",
        "EM is the share of inputs whose output and whole patch are right, as in the paper, with "
        "95% bootstrap intervals over inputs. *With exit* also requires the exit code. *Masked* is "
        "EM without the parts that vary between runs. *New texts* has the EM of the inputs that "
        "are not among the model's records, and their number. If a model has fewer records than "
        "its size, it has all distinct texts of the pool.",
        ("model", "regime", "records", "seed", *names),
        lines,
    )


def difference_table(rights: Mapping[RegimeRow, Sequence[bool]]) -> Table:
    """Tabulate EM differences of equally large regimes, paired by input, averaged over draws."""
    groups: dict[tuple[str, int, str], dict[tuple[str, str], list[RegimeRow]]] = {}
    for row in rights:
        of_regime = groups.setdefault((row.model, row.size, row.suite), {})
        of_regime.setdefault((row.regime, row.steps), []).append(row)
    lines = []
    for (model, size, suite), found in groups.items():
        for one, other in PAIRS:
            cells = [
                _less(found.get((one, steps), []), found.get((other, steps), []), rights)
                for steps in STEPS
            ]
            if any(cells):
                said = [cell or "-" for cell in cells]
                lines.append((suite, model, f"{size:,}", f"{one} - {other}", *said))
    return Table(
        "Differences between regimes",
        "The table has differences in EM between models with equal numbers of records. Inputs are "
        "paired, and draws averaged. The 95% bootstrap intervals are over inputs.",
        ("suite", "model", "size", "regimes", *STEPS),
        lines,
    )


def _less(
    ours: list[RegimeRow], theirs: list[RegimeRow], rights: Mapping[RegimeRow, Sequence[bool]]
) -> str:
    """Return the difference of two regimes' means with its 95% interval.

    Empty if one regime is missing, or has too few records (`LIKE`).
    """
    if not ours or not theirs:
        return ""
    few, many = sorted(np.mean([row.records for row in rows]) for rows in (ours, theirs))
    if few < LIKE * many:
        return ""
    means = [np.mean([rights[row] for row in rows], axis=0).tolist() for rows in (ours, theirs)]
    resampled = Resampled(len(means[0]))
    one, other = map(resampled.drawn, means)
    value, low, high = one.less(other)
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def _cells(row: RegimeRow | None) -> tuple[str, ...]:
    if row is None:
        return ("-",) * len(PARTS)
    new = "-" if row.em_new is None else f"{row.em_new:.3f} ({row.new})"
    em = f"{row.em:.3f} [{row.em_low:.3f}, {row.em_high:.3f}]"
    return em, f"{row.em_exit:.3f}", f"{row.em_masked:.3f}", new
