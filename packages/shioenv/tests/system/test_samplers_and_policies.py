"""Every sampler with every policy, on the command line and from Python, on the built system."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import shioenv
from shioenv.cli.main import app
from shioenv.dataset.manifest import read_manifest
from shioenv.errors import UsageError
from shioenv.execution.local import SerialExecutor
from shioenv.synthesis.drawing import DEFAULT_POLICY, Drawing
from shioenv.synthesis.policy import NAMED
from shioenv.synthesis.sample import sample
from shioenv.synthesis.samplers import SAMPLERS
from shioenv.system.store import System
from support.nightly import LARGER, scaled
from support.paths import ROOT

pytestmark = pytest.mark.usefixtures("system")

OF_SAMPLER = {"gcs": "mixed", "ucs": "paper", "ucs-universal": "paper"}
FREE = {"mixed", "people"}
"""The policies that choose options, values and shapes, which only a grammatical sampler allows."""

PAIRS = list(product(SAMPLERS, [None, DEFAULT_POLICY, *NAMED]))
COMMANDS = ("ls", "head")


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def options(sampler: str, policy: str | None) -> list[str]:
    chosen = [] if policy is None else ["--policy", policy]
    named = [word for command in COMMANDS for word in ("--command", command)]
    return ["--sampler", sampler, *chosen, *named, "--composite-share", "0", "--seed", "3"]


def names_both(text: str, sampler: str, policy: str) -> bool:
    return f"the policy {policy} supports gcs, not {sampler}" in text


@LARGER
@pytest.mark.parametrize(("sampler", "policy"), PAIRS[:: scaled(8, 1)])
def test_the_command_line_draws_and_generates_or_names_both(
    tmp_path: Path, sampler: str, policy: str | None
) -> None:
    chosen = OF_SAMPLER[sampler] if policy in (None, DEFAULT_POLICY) else policy
    assert chosen is not None
    words = options(sampler, policy)
    drawn = call("sample", *words, "--count", "3", "--json")
    made = call(
        "generate", tmp_path / "made", *words, "--count", "1", "--without-scores", "--workers", "1",
        "--no-cache",
    )  # fmt: skip
    if chosen in FREE and sampler != "gcs":
        for failed in (drawn, made):
            assert failed.exit_code == 2
            assert names_both(failed.output, sampler, chosen)
        assert not (tmp_path / "made").exists()
        return
    assert (drawn.exit_code, made.exit_code) == (0, 0), drawn.output + made.output
    documents = [json.loads(line) for line in drawn.stdout.splitlines()]
    assert [(one["sampler"], one["policy"]) for one in documents] == [(sampler, chosen)] * 3
    drawing = read_manifest(tmp_path / "made").plan.drawing
    assert (drawing.sampler, drawing.policy) == (sampler, chosen)
    (record,) = shioenv.read_records(tmp_path / "made")
    assert record.input == documents[0]["input"]


@pytest.mark.parametrize(("sampler", "policy"), PAIRS)
def test_python_draws_the_same_or_names_both(
    system: System, sampler: str, policy: str | None
) -> None:
    """The sampler may be named at first, or replaced later in a drawing of defaults."""
    usual = Drawing(seed=3, commands=COMMANDS, composite_share=0.0)
    given = {} if policy is None else {"policy": policy}
    first = Drawing(
        sampler=sampler, seed=3, commands=COMMANDS, composite_share=0.0, **given  # type: ignore[arg-type]
    )  # fmt: skip
    later = replace(replace(usual, **given), sampler=sampler)  # type: ignore[arg-type]
    assert first == later
    if first.chosen_policy in FREE and sampler != "gcs":
        with pytest.raises(UsageError, match=f"{first.chosen_policy} .* {sampler}"):
            sample(later, system=system, count=1)
        return
    texts = [one.input.text for one in sample(later, system=system, count=3)]
    printed = call("sample", *options(sampler, policy), "--count", "3")
    assert [line.partition("; ")[2] for line in printed.stdout.splitlines()] == texts


def test_python_generates_with_the_policy_of_a_sampler_named_later(tmp_path: Path) -> None:
    drawing = replace(Drawing(commands=COMMANDS), sampler="ucs")
    made = shioenv.generate(
        tmp_path / "ucs", count=1, drawing=drawing, executor=SerialExecutor(),
        scoring=shioenv.Scoring(budget=1, noise_runs=1),
    )  # fmt: skip
    assert made.manifest.plan.drawing.policy == "paper"


def test_help_shows_the_default_of_each_sampler() -> None:
    for name in ("sample", "generate"):
        shown = " ".join(call(name, "--help").output.replace("│", " ").split())
        assert "mixed with gcs, paper with ucs and ucs-universal)" in shown
        page = ROOT / "docs" / "reference" / "cli" / f"{name}.md"
        assert "mixed with gcs, paper with ucs and ucs-universal)" in page.read_text()
