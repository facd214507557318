"""Tasks made on a scripted machine, and single-process executors that use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.recording.text_score import read_arguments
from shioenv_agents.tasks import certify, make, task_composition
from shioenv_agents.tasks.attacks import ATTACKS
from shioenv_agents.tasks.certificate import JudgeCertificate
from shioenv_agents.tasks.certify import judge_digests
from shioenv_agents.tasks.make import make_task
from shioenv_agents.tasks.task import Task
from support.toy_machine import HOME, SYSTEM, ToyMachine

MACHINE = ToyMachine()
JUDGE, CHANNEL = judge_digests()
STOOD = JudgeCertificate(judge=JUDGE, channel=CHANNEL, attacks=len(ATTACKS), tasks=50)


def typed(text: str) -> Behavior:
    return MACHINE.type([Row(RowKind.TYPED, text)], HOME)


def record(text: str, **fields: Any) -> Any:
    """Return the record that a recorder would make of an input."""
    shell_input = read_arguments(text).input
    done = typed(text)
    known: dict[str, Any] = {
        "input_args": shell_input.input_args,
        "session_id": 7, "cwd": HOME, "history": (), "exit_code": done.exit_code,
        "output_bytes": done.output, "irreducibility": 1.0, "necessary": None, "system": "toy",
        "n_arguments": shell_input.n_arguments, "mistake": None, "timed_out": False,
        "output_truncated": False, "patch_truncated": False, "limits_hit": (), "volatile": False,
    }  # fmt: skip
    return SimpleNamespace(**{**known, **fields})


def made(text: str) -> Task | str:
    return make_task(record(text), MACHINE)


def task(text: str) -> Task:
    found = made(text)
    assert isinstance(found, Task), (text, found)
    return found


class Serial:
    """An executor of one process, with one machine."""

    def __init__(self, workers: int | None = None) -> None:
        pass

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def map(self, job: Any, tasks: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        lane = SimpleNamespace(open=lambda: MACHINE)
        for number, one in tasks:
            yield number, job.do(lane, (number, one))


def use_scripted_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks made, certified and composed on the scripted machine, without attacks."""
    monkeypatch.setattr(make, "LocalExecutor", Serial)
    for module in (make, task_composition, certify):
        monkeypatch.setattr(module, "find_system", lambda name: SYSTEM)
    monkeypatch.setattr(make, "encode_record", lambda one: repr(one.input_args).encode())
    monkeypatch.setattr(certify, "certified_judge", lambda *given: STOOD)
    monkeypatch.setattr(certify, "_load", nullcontext)
