"""Who attempts tasks: the scripts, named agents, and a language model as well."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv_agents.tasks import agents
from shioenv_agents.tasks.agents import SCRIPTS, Attempt
from shioenv_agents.tasks.task import Task
from support.known_tasks import RIGHT_ANSWERS

FILE = RIGHT_ANSWERS / "tasks.jsonl"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the agents that tried, by name; no machine is opened."""
    names: list[str] = []

    def attempts(tasks: Sequence[Task], name: str, *, agent: object, **_: Any) -> list[Attempt]:
        assert callable(agent)
        names.append(name)
        return [Attempt(agent=name, solved=True, progress=1.0, turns=1) for _ in tasks]

    monkeypatch.setattr(agents, "attempts", attempts)
    monkeypatch.setattr(agents, "prompted", lambda name, url: agents.idle)
    return names


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], [*SCRIPTS]),
        (["--language-model", "gpt-x"], [*SCRIPTS, "gpt-x"]),
        (["--agent", "idle", "--agent", "idle"], ["idle"]),
        (
            ["--agent", "idle", "--language-model", "gpt-x", "--endpoint", "http://x"],
            ["idle", "gpt-x"],
        ),
    ],
)
def test_a_model_tries_as_well(asked: list[str], options: list[str], names: list[str]) -> None:
    command = ["tasks", "evaluate", str(FILE), "--count", "2", "--json", *options]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert (done.exit_code, asked) == (0, names)
    assert list(dict.fromkeys(row["agent"] for row in json.loads(done.stdout)["results"])) == names


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--endpoint", "http://x"], "--endpoint needs --language-model"),
        (["--language-model", "facts"], "'facts' is a scripted agent"),
        (["--language-model", "idle", "--endpoint", "http://x"], "'idle' is a scripted agent"),
    ],
)
@pytest.mark.parametrize("command", [["evaluate", str(FILE)], ["set", "SET"]])
def test_a_model_that_is_none_is_refused(
    asked: list[str], tmp_path: Path, command: list[str], options: list[str], why: str
) -> None:
    words = [str(tmp_path / "set") if word == "SET" else word for word in command]
    done = CliRunner().invoke(app, ["tasks", *words, *options])
    assert (done.exit_code, asked, [*tmp_path.iterdir()]) == (2, [], [])
    assert why in done.stderr
