"""Features of packages that are not installed: one error with the installer's command."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.errors import LimitsError, MissingExtraError
from shioenv.execution.local import executor_named
from shioenv.guests import find_guest, installed_points, load_guest
from shioenv.sandbox.backends import (
    GROUP,
    default_sandbox,
    inherited_by_inputs,
    installed_backends,
    kernel_of,
    layer_of,
    load_backend,
)
from shioenv.sandbox.base import MACHINES, Limits, ShellMode


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all guests."""

    def nothing(**_: Any) -> EntryPoints:
        return EntryPoints()

    monkeypatch.setattr("shioenv.guests.entry_points", nothing)


def test_every_machine_has_a_backend_of_its_name() -> None:
    assert {point.name for point in entry_points(group=GROUP)} == set(MACHINES)
    assert len(list(installed_backends())) == len(MACHINES)


def test_the_layer_says_what_the_files_lie_on() -> None:
    layers = {name: layer_of(Limits(sandbox=name)) for name in MACHINES}
    assert layers == {
        "microvm": "ext4 in a microVM",
        "microvm-bare": "ext4 of a microVM, bare",
        "firecracker": "ext4 in a microVM",
    }


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", MACHINES)
def test_a_sandbox_whose_package_is_missing(name: str) -> None:
    limits = Limits(sandbox=name)
    for ask in (lambda: load_backend(name), lambda: kernel_of("x", limits)):
        with pytest.raises(MissingExtraError) as caught:
            ask()
        missing, _, command = caught.value.message.partition(": ")
        assert missing == f"--sandbox {name} needs shioenv-backends, which is not installed"
        assert command.endswith(" 'shioenv[backends]'")
        assert caught.value.exit_status == 3
    assert inherited_by_inputs(limits) == []


@pytest.mark.usefixtures("alone")
def test_without_guests_there_are_no_backends() -> None:
    assert list(installed_backends()) == []


@pytest.mark.usefixtures("alone")
def test_an_engine_whose_package_is_missing() -> None:
    with pytest.raises(MissingExtraError, match="--engine ray needs shioenv-backends"):
        executor_named("ray")


def test_an_unknown_sandbox_is_no_missing_package() -> None:
    with pytest.raises(LimitsError, match="unknown sandbox 'microvn'"):
        Limits(sandbox="microvn")


def test_the_entry_point_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("some", "json:dumps", "shioenv.things")
    asked = []

    def found(*, group: str) -> EntryPoints:
        asked.append(group)
        return EntryPoints([point]).select(group=group)

    monkeypatch.setattr("shioenv.guests.entry_points", found)
    made = load_guest("shioenv.things", "some", feature="--some", extra="things")
    assert made({}) == "{}"
    assert find_guest("shioenv.things", "other") is None
    assert asked == ["shioenv.things"] * 2


def test_of_two_with_one_name_this_projects_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = EntryPoint("some", "shioenv.text:count", "shioenv.things")
    other = EntryPoint("some", "json:dumps", "shioenv.things")
    for points in ([ours, other], [other, ours]):
        monkeypatch.setattr("shioenv.guests.entry_points", lambda group, given=points: given)
        assert installed_points("shioenv.things") == {"some": ours}


@pytest.mark.usefixtures("alone")
def test_a_microvm_is_refused_before_its_system_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shioenv.system.store.build_system", pytest.fail)
    result = CliRunner().invoke(app, ["system", "build", "--microvm"])
    assert result.exit_code == 3
    assert "--microvm needs shioenv-backends, which is not installed: " in result.output


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("microvm", "MicrovmSandbox"),
        ("microvm-bare", "BareSandbox"),
        ("firecracker", "FirecrackerSandbox"),
    ],
)
def test_each_name_opens_its_kind_of_machine(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[Any, ...]] = []

    def note(*given: Any, mode: ShellMode = ShellMode.FRESH) -> None:
        opened.append((*given, mode))

    monkeypatch.setattr(f"shioenv_backends.microvm.provided.{kind}", note)
    system: Any = object()
    limits = Limits(sandbox=name, without_shell_state=True)
    default_sandbox(system, limits)
    assert opened == [(system, limits, ShellMode.FRESH)]
