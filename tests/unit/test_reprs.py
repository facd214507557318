"""Public objects on one short line, and as HTML in notebooks, whatever they hold."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shioenv
from shioenv.dataset.generate import Summary
from shioenv.dataset.manifest import Manifest
from shioenv.dataset.questions import Question
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context, pointer
from shioenv.domain.inputs import Input
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record
from shioenv.domain.runner import Answer, ScriptedRunner, State
from shioenv.env.shio_env import ShIOEnv
from shioenv.errors import SandboxError, ShioenvError
from shioenv.irreducibility.score import ArgumentEffect, Score, SegmentScore
from shioenv.irreducibility.scoring import Scoring
from shioenv.live.model_shell import HybridShell, ModelShell
from shioenv.recording.effort import Effort
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.text import LONGEST_REPR
from shioenv_agents.preview.layered_run import Preview
from shioenv_agents.tasks.env import TaskEnv
from shioenv_agents.tasks.task import Goal, Task
from shioenv_eval.evaluate import Evaluation
from shioenv_eval.suite import Suite, SuiteCase
from shioenv_model.model import Model
from support.dataset_fakes import plan
from support.evaluation_fakes import suite_of

HOSTILE = "<script>alert('shown')</script>\n\x1b[2J\u202e" + "&amp;<b>x" * 2000
"""A text that nothing may interpret, with several lines and a length of 20,000 characters."""

PATCH = ContextPatch(
    tuple(("a", pointer("fs", f"{number}{HOSTILE}"), HOSTILE) for number in range(40))
)
BEHAVIOR = Behavior(
    1, HOSTILE.encode("utf-8", "surrogatepass"), PATCH, {HOSTILE: HOSTILE}, limits_hit=(HOSTILE,)
)
STATE = State(cwd=HOSTILE, history=(HOSTILE,) * 9, context=Context({"cwd": HOSTILE, "fs": {}}))
EFFECT = ArgumentEffect(0, HOSTILE, True, None, None)
RECORD = Record(
    session_id=7, input=HOSTILE, input_args=[HOSTILE], exit_code=1, output=HOSTILE,
    context_patch=PATCH.to_json(), irreducibility=0.5,
)  # fmt: skip
SCORE = Score(
    irreducibility=0.5, irreducibility_strict=None, necessary=None, exact=True, standard_error=0.0,
    interval=None, n_arguments=1, n_executions=2, noise_threshold=1.0, volatile=False,
    behavior=BEHAVIOR, segments=(SegmentScore(HOSTILE, arguments=(EFFECT,)),),
)  # fmt: skip
RUNNER = ScriptedRunner(table={HOSTILE: BEHAVIOR})
TASK = Task(
    id="1", prompt=HOSTILE, cwd="/", goal=Goal(patch=[["r", "/fs/x"]]), solution=HOSTILE,
    reduced="rm", commands=["rm"], irreducibility=1.0, n_arguments=1, record=1, system=HOSTILE,
    system_digest="0" * 64,
)  # fmt: skip


def without_init(kind: type, **attributes: object) -> Any:
    """An object that was never opened, with the attributes that its `repr` shows."""
    made: Any = object.__new__(kind)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


SYSTEM = without_init(shioenv.System, name=HOSTILE, digest="0" * 64)
LIMITS = Limits(
    wall_seconds=1.25, cpu_seconds=2.5, memory_bytes=3 << 20, processes=4, disk_bytes=5 << 20,
    disk_inodes=6, output_bytes=7, drain_bytes=8, background_seconds=0.9, scan_seconds=1.0,
)  # fmt: skip
ENVIRONMENT = without_init(ShIOEnv, sampler=HOSTILE, horizon=9)
TASKS = without_init(TaskEnv, _system=HOSTILE, tasks=[TASK] * 999, max_turns=20)
MODEL = without_init(Model, card={"name": HOSTILE}, memory=SimpleNamespace(digest="0" * 64))
PREVIEW = without_init(Preview, start=HOSTILE, behavior=BEHAVIOR)
OPENED = without_init(shioenv.SandboxRunner, system=SYSTEM, _sandbox=SimpleNamespace(limits=LIMITS))


def summary() -> Summary:
    manifest = Manifest(plan=plan(commands=(HOSTILE,)), count=9, kernels=(HOSTILE,))
    return Summary(Path(HOSTILE), manifest, 1, 2, 3, 4, 5.0, Effort())


MADE: Mapping[type, Callable[[], object]] = {
    shioenv.Behavior: lambda: BEHAVIOR,
    shioenv.Context: lambda: STATE.before,
    shioenv.ContextPatch: lambda: PATCH,
    shioenv.Drawing: lambda: Drawing(commands=("command",) * 99, start_directories=(HOSTILE,)),
    shioenv.Input: lambda: Input.from_marked([HOSTILE]),
    shioenv.Limits: lambda: LIMITS,
    shioenv.Record: lambda: RECORD,
    shioenv.SandboxRunner: lambda: OPENED,
    shioenv.Score: lambda: SCORE,
    shioenv.Scoring: lambda: Scoring(budget=9, noise_runs=8, target_se=0.125, process_budget=7),
    shioenv.ScriptedRunner: lambda: RUNNER,
    shioenv.ShioenvError: lambda: ShioenvError(HOSTILE, hint=HOSTILE),
    shioenv.State: lambda: STATE,
    shioenv.System: lambda: SYSTEM,
    SandboxError: lambda: SandboxError(HOSTILE),
    Answer: lambda: Answer(BEHAVIOR, 0.5, HOSTILE),
    ModelShell: lambda: ModelShell(RUNNER, STATE),
    HybridShell: lambda: HybridShell(RUNNER, ModelShell(RUNNER, STATE), 0.5),
    Summary: summary,
    Manifest: lambda: summary().manifest,
    ShIOEnv: lambda: ENVIRONMENT,
    TaskEnv: lambda: TASKS,
    Task: lambda: TASK,
    Preview: lambda: PREVIEW,
    Suite: lambda: suite_of(*[SuiteCase(Question("1", HOSTILE), (BEHAVIOR,))] * 9),
    SuiteCase: lambda: SuiteCase(Question("1", HOSTILE), (BEHAVIOR,)),
    Evaluation: lambda: Evaluation(suite_of(), (), {HOSTILE: HOSTILE}),
    Model: lambda: MODEL,
}
"""An object of each public class, full of hostile text."""

IN_NOTEBOOKS = (Behavior, ContextPatch, Record, Score, Summary)


def test_every_public_class_is_among_them() -> None:
    public = {value for name in shioenv.__all__ if inspect.isclass(value := getattr(shioenv, name))}
    protocols = {value for value in public if getattr(value, "_is_protocol", False)}
    assert public - protocols - MADE.keys() == set()


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_a_repr_is_one_short_line_that_names_the_class(kind: type) -> None:
    shown = repr(MADE[kind]())
    assert shown.isprintable()
    assert len(shown) <= LONGEST_REPR
    assert kind.__name__ in shown
    assert " object at 0x" not in shown


@pytest.mark.parametrize("name", shioenv.__all__)
def test_the_repr_of_every_public_name_is_one_short_line(name: str) -> None:
    shown = repr(getattr(shioenv, name))
    assert shown.isprintable()
    assert len(shown) <= LONGEST_REPR


def test_a_repr_names_what_matters() -> None:
    assert repr(Behavior(3, b"out\n")) == "Behavior(exit_code=3, output=b'out\\n')"
    patch = ContextPatch((("a", "/fs/~1tmp~1.x", {}), ("=", "/env/PWD", "/tmp")))
    assert repr(patch) == "<ContextPatch: changed env PWD; added /tmp/.x>"
    assert repr(ContextPatch()) == "<ContextPatch: nothing>"
    assert repr(Limits(wall_seconds=2)) == "Limits(wall_seconds=2)"
    assert repr(Input.from_marked(["ls", "-l"])) == "Input(text='ls -l')"
    assert repr(State(cwd="/tmp", status=1)) == "State(cwd='/tmp', status=1)"


@pytest.mark.parametrize("kind", IN_NOTEBOOKS, ids=lambda kind: kind.__name__)
def test_nothing_in_a_notebook_is_interpreted(kind: type) -> None:
    html = MADE[kind]()._repr_html_()  # type: ignore[attr-defined]
    allowed = {"table", "tr", "th", "td", "pre"}
    assert {*re.findall(r"</?(\w*)", html)} == allowed
    assert re.sub(r"\n", "", html).isprintable()
    assert re.findall(r"&(?!amp;|lt;|gt;|quot;|#x27;)", html) == []
    assert len(html) < 60_000


def test_a_record_with_a_broken_patch_is_shown() -> None:
    broken = Record(
        session_id=1, input="x", input_args=["x"], exit_code=0, output="", irreducibility=None,
        context_patch="[[<b>",
    )  # fmt: skip
    assert "[[&lt;b&gt;" in broken._repr_html_()
