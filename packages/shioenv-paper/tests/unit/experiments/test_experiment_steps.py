"""Steps from our sampling and score to the paper's."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.traces import Sample
from shioenv_paper import steps
from shioenv_paper.experiment_output import read_columns
from shioenv_paper.setting import ExperimentSetting
from support.experiment_fakes import SYSTEM


def sample(*args: str) -> Sample:
    return Sample(Input.from_marked(args), "/", False, ())


class Echo:
    """Prints its arguments, and fails with -f, with -f -g always in the same way."""

    def run(self, text: str, state: State) -> Behavior:
        failed = "-f" in text
        output = b"" if "-g" in text else text.removeprefix("tool").encode()
        return Behavior(1 if failed else 0, output, ContextPatch(()))


def scores(*args: str) -> tuple[float, ...]:
    done = steps.stepped(Echo(), (0, sample(*args)), seed=1, scoring=Scoring(budget=64))  # type: ignore[arg-type]
    assert done.scores is not None
    assert done.fails is ("-f" in args)
    return done.scores


def test_each_rule_keeps_those_before_it() -> None:
    ours, failures, *_ = scores("tool", "-f", "-x", "-y")
    assert ours == 1, "each argument changes the output"
    assert 0 < failures < 1, "sub-inputs that fail alike are the same"
    assert len(scores("tool", "abc")) == 1 + len(steps.RULES)
    same = scores("tool", "a", "A")
    assert same[0] == same[2], "a blank and a letter are left"
    assert scores("tool", "-g", "-h", "-i", "-j")[-1] > scores("tool", "-g", "-h", "-i", "-j")[-2]


def test_consecutive_operands_are_packed() -> None:
    packed = steps._packed(sample("cp", "-r", "a", "b", "-v", "c", "-x<ns>", "<ns>y"))
    assert packed.input.text == "cp -r a b -v c -xy"
    assert [one.text for one in packed.input.segments[0].arguments] == [
        "-r", "a b", "-v", "c", "-x", "y",
    ]  # fmt: skip


def test_samples_are_chosen_in_proportion() -> None:
    random = Random(3)
    stream = (sample(random.choice(("ls", "cp")), str(number)) for number in range(200))
    chosen = steps._in_proportion(stream, Counter({"ls": 3, "cp": 1}), 40)
    assert Counter(map(steps._command, chosen)) == {"ls": 30, "cp": 10}


def test_all_steps_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def samples(setting: ExperimentSetting, count: int, inputs: Path | None) -> Any:
        for name in list(steps.SAMPLING)[: 7 if inputs else 4]:
            yield name, [sample("tool", str(number)) for number in range(9)]

    def scored(setting: Any, name: str, made: list[Sample], scoring: Scoring) -> Any:
        value = 1 - list(steps.SAMPLING).index(name) / 10
        give = partial(steps.Stepped, text="tool", fails=True)
        return [give(n, scores=(value, *(value / 2,) * 4) if n else None) for n in range(len(made))]

    monkeypatch.setattr(steps, "_samples", samples)
    monkeypatch.setattr(steps, "_scores", scored)
    monkeypatch.setattr(ExperimentSetting, "system", SYSTEM)
    results = steps.run_steps(ExperimentSetting(out=tmp_path), count=5, inputs=Path("x"))
    (table,) = results.tables
    assert [row[0] for row in table.rows] == list(steps.STEPS)
    assert table.rows[1][2:] == ("4", "0.900 (0.900 to 0.900)", "-0.100", "100%", "0.450")
    assert table.rows[7][3:5] == ("0.200 (0.200 to 0.200)", "-0.200")
    assert results.document["summary"]["last step minus the paper's"] == -0.146
    assert len(read_columns(results.directory / "scores.parquet")["step"]) == 35
    fewer = steps.run_steps(ExperimentSetting(out=tmp_path), count=5)
    assert [row[0] for row in fewer.tables[0].rows][3:5] == ["packed operands", "failures"]
