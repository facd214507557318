"""Limits name the place where inputs run; on the command line it is an option of words."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace

import pytest
import typer
from typer.testing import CliRunner

from shioenv.behavior.observe import open_sandbox
from shioenv.cli.main import app
from shioenv.cli.shared import SLOWER, UNTRIED, LimitsOptions, RecordLimits
from shioenv.errors import LimitsError, UsageError
from shioenv.sandbox.base import LIMITS, SANDBOXES, Limits, limits_from
from support.cli_reference import commands


def test_an_unknown_sandbox_is_refused_with_the_nearest() -> None:
    with pytest.raises(LimitsError, match="microwm") as caught:
        Limits(sandbox="microwm")
    assert "microvm" in (caught.value.hint or "")


@pytest.mark.parametrize(("said", "runs"), [("input", 1), ("never", 0), ("7", 7)])
def test_how_often_a_machine_is_restored(said: str, runs: int) -> None:
    assert LimitsOptions(sandbox="microvm", revert=said).limits().revert == runs


@pytest.mark.parametrize("said", ["0", "-1", "often", "1.5", ""])
def test_what_says_no_such_thing_is_refused(said: str) -> None:
    with pytest.raises(UsageError):
        LimitsOptions(sandbox="microvm", revert=said).limits()


def test_walls_are_longer_where_the_processor_may_be_simulated() -> None:
    assert LimitsOptions().limits() == Limits()
    assert RecordLimits(sandbox="microvm").limits().wall_seconds == LIMITS.wall_seconds * SLOWER
    assert LimitsOptions(3.0, sandbox="microvm").limits().wall_seconds == 3.0


def test_one_value_says_where_inputs_run() -> None:
    assert SANDBOXES == ("namespaces", "microvm", "microvm-bare", "firecracker")
    assert "inside" not in {field.name for field in fields(Limits)}
    assert [*inspect.signature(open_sandbox).parameters] == ["system", "limits", "sandbox"]
    taking = 0
    for path, command in commands("shioenv", typer.main.get_command(app)):
        options = {name for option in command.params for name in option.opts}
        assert "--inside" not in options, path
        assert ("--sandbox" in options) == ("--revert" in options), path
        taking += "--sandbox" in options
    assert taking >= 10


@pytest.mark.parametrize("options", [LimitsOptions, RecordLimits])
def test_a_bare_machine_implies_that_no_shell_state_is_read(options: type[LimitsOptions]) -> None:
    assert options(sandbox="microvm-bare").limits().without_shell_state
    assert not options(sandbox="microvm").limits().without_shell_state
    assert Limits(sandbox="microvm-bare") == Limits(
        sandbox="microvm-bare", without_shell_state=True
    )
    assert replace(Limits(), sandbox="microvm-bare").without_shell_state


@pytest.mark.parametrize("revert", ["never", "2"])
def test_a_bare_machine_is_restored_before_every_input(revert: str) -> None:
    with pytest.raises(LimitsError, match="microvm-bare") as caught:
        LimitsOptions(sandbox="microvm-bare", revert=revert).limits()
    assert "revert" in (caught.value.hint or "")


def test_limits_in_older_files_name_the_bare_machine_apart() -> None:
    bare = {"sandbox": "microvm", "inside": "bare", "without_shell_state": True}
    assert limits_from(bare) == Limits(sandbox="microvm-bare")
    assert limits_from({"sandbox": "microvm", "inside": "namespaces"}) == Limits(sandbox="microvm")
    assert limits_from({"wall_seconds": 2.0}) == Limits(wall_seconds=2.0)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "true"],
        ["score", "ls -l"],
        ["generate", "DIR", "--count", "1"],
        ["experiment", "determinism", "--out", "DIR"],
        ["suite", "record", "public-dev", "--out", "DIR/new"],
    ],
)
def test_each_use_of_firecracker_says_once_that_it_is_untried(
    words: list[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    place = str(tmp_path_factory.mktemp("made") / "new")
    words = [word.replace("DIR", place) for word in words]
    told = CliRunner().invoke(app, [*words, "--sandbox", "firecracker", "--system", "none"])
    assert told.exit_code != 0
    assert told.stderr.count(UNTRIED) == 1
    assert UNTRIED not in told.stdout
    for other in ("namespaces", "microvm-bare"):
        told = CliRunner().invoke(app, [*words, "--sandbox", other, "--system", "none"])
        assert "firecracker" not in told.stderr
