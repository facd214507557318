"""Evaluation of networks that were trained on another machine, on the suites' questions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shioenv.domain.answer_json import behavior_json
from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch
from shioenv.errors import ContextError, DatasetMismatchError, PatchError
from shioenv.files.durable import atomic_write
from shioenv_eval.evaluate import answers_beneath, evaluate
from shioenv_eval.report.markup import Table
from shioenv_eval.suite import Suite
from shioenv_model.memory.world import World, read_world
from shioenv_model.sequence.codec import Codec
from shioenv_model.sequence.compact import Now, operations_of
from shioenv_model.sequence.seq2seq import now_from
from shioenv_model.training.token_examples import Seen
from shioenv_paper.experiment_journal import journal_error
from shioenv_paper.experiment_output import Findings, columns, experiment
from shioenv_paper.networks.carried import MIXTURE, CarriedError, read_carried
from shioenv_paper.regimes import (
    RegimeRow,
    RowFacts,
    difference_table,
    judged_rows,
    regime_table,
)
from shioenv_paper.setting import ExperimentSetting

NAME = "networks"


@experiment(NAME)
def run_networks(
    setting: ExperimentSetting, *, suites: Sequence[Suite], carried: Path, results: Path
) -> Findings:
    """Evaluate the answers in a file of results, and compare the regimes.

    `carried` is the directory that was packed. Errors: DatasetMismatchError if the results are of
    another pack, or if the pack has other suites; DatasetCorruptError for an unreadable file.
    """
    from shioenv_paper import experiment_charts

    try:
        pack = read_carried(carried)
        found = json.loads(results.read_bytes())
        models: dict[str, Any] = found["models"]
    except (CarriedError, OSError, ValueError, KeyError) as error:
        raise journal_error(results, error) from None
    digests = {suite.head.name: suite.head.digest for suite in suites}
    if found["pack"] != pack.digest or pack.facts["suites"] != digests:
        raise DatasetMismatchError(
            str(results), [f"pack: {found['pack'][:12]}, suites: {', '.join(pack.facts['suites'])}"]
        )
    beside = carried.parent / "known"
    codec, world = Codec.read(beside), read_world(beside)
    now = now_from(pack.facts["now"])
    rights: dict[RegimeRow, list[bool]] = {}
    for name, model in models.items():
        regime = model["regime"]
        known = [
            Seen(beside / each)
            for each in (pack.facts["regimes"] if regime == MIXTURE else [regime])
        ]
        for number, suite in enumerate(suites):
            cases = [
                (int(row["case"]), answer)
                for row, answer in zip(pack.questions, model["answers"], strict=True)
                if row["suite"] == number
            ]
            directory = setting.data / NAME / pack.digest[:12] / name
            directory.mkdir(parents=True, exist_ok=True)
            recorded = directory / f"{suite.head.name}.answers"
            atomic_write(recorded, _recording(suite, cases, codec, world, now))
            evaluation = evaluate(
                suite, [f"recording:{recorded}"], answers_beneath(directory, suite), workers=1
            )
            about = RowFacts(
                "decoder", regime, model["examples"], model["examples"], model["seed"],
                suite.head.name,
            )  # fmt: skip
            rights.update(judged_rows(evaluation, about, partial(_is_known, known)))
    rows = list(rights)
    status = {"status": found["status"], "missing": found["missing"]}
    return Findings(
        title="Accuracy of networks of each regime",
        data={"rows": columns(rows, *RegimeRow.__dataclass_fields__)},
        tables=[
            *(regime_table(rows, suite.head.name) for suite in suites),
            difference_table(rights),
            _training_table(models),
        ],
        chart=experiment_charts.draw_regimes(rows),
        counts=pack.facts["counts"],
        parameters={"plan": pack.facts["plan"], "pools": pack.facts["pools"], **status},
        summary={f"{row.regime} {row.seed} {row.suite} {row.steps}": row.em for row in rows},
    )


def _is_known(known: Sequence[Seen], cwd: str, text: str) -> bool:
    """Whether a regime has a record with the text of an input, in any directory."""
    return any(seen.has_text(text) for seen in known)


def _recording(
    suite: Suite, cases: Sequence[tuple[int, Any]], codec: Codec, world: World, now: Now
) -> bytes:
    """Return the answers to a suite as lines for the predictor `recording`.

    Cases without an answer, and answers that are not valid behaviors, are abstentions.
    """
    lines: list[dict[str, Any]] = []
    for number, (tokens, sure) in cases:
        case = suite.cases[number]
        state = case.state(suite.head.start)
        answer = _answer(tokens, sure, codec, world, state.cwd, now)
        lines.append({"input": case.question.input, "cwd": state.cwd, **answer})
    return b"".join(f"{json.dumps(line)}\n".encode() for line in lines)


def _answer(
    tokens: Sequence[int], sure: float, codec: Codec, world: World, cwd: str, now: Now
) -> dict[str, Any]:
    target = codec.decode_target(tokens)
    document = world.state(cwd).before.document
    if target is None:
        return {"abstained": True}
    try:
        patch = ContextPatch(tuple(operations_of(target.patch, document, now)))
        Context(patch.apply(document))
    except (PatchError, ContextError, ValueError, KeyError):
        return {"abstained": True}
    return {**behavior_json(target.behavior(patch)), "confidence": min(1.0, math.exp(sure))}


def _training_table(models: Mapping[str, Any]) -> Table:
    return Table(
        "Training",
        "*Held out* is the loss per token of held-out examples of the regime, or a dash if these "
        "are fewer than a batch. All regimes continue the mixture's weights.",
        ("regime", "seed", "examples", "steps", "seconds", "tokens per second", "held out"),
        list(_training_rows(models)),
    )


def _training_rows(models: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for one in models.values():
        loss = "-" if one["dev_loss"] is None else f"{one['dev_loss']:.3f}"
        yield (
            one["regime"], str(one["seed"]), f"{one['examples']:,}", str(one["steps"]),
            f"{one['seconds']:.0f}", f"{one['tokens_per_second']:,}", loss,
        )  # fmt: skip
