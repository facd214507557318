"""`shioenv doctor`: every check has a reason and a fix; missing parts decide the exit status."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.sandbox import backends as doctor
from shioenv.sandbox.namespaces import host as namespaces
from shioenv.system import host_checks as building
from shioenv.system.host_checks import HostCheck
from shioenv.system.idmap import find_idmap

FINE = HostCheck("kernel", True, "Linux 6.18", "for the overlay", "a newer one")
MISSING = HostCheck("mmdebstrap", False, "not installed", "it builds", "apt-get install mmdebstrap")
OPTIONAL = HostCheck("mirror", False, "no answer", "packages", "another mirror", needed=False)


@pytest.mark.parametrize(
    ("found", "status"),
    [([FINE], 0), ([FINE, OPTIONAL], 0), ([FINE, MISSING], 3), ([MISSING, OPTIONAL], 3)],
)
def test_only_what_is_needed_and_missing_is_exit_3(
    monkeypatch: pytest.MonkeyPatch, found: list[HostCheck], status: int
) -> None:
    monkeypatch.setattr(doctor, "check_host", lambda: found)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == status
    document = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert document["ok"] is (status == 0)


def test_what_is_missing_is_shown_with_reason_and_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_host", lambda: [MISSING])
    shown = CliRunner().invoke(app, ["doctor"]).stdout
    assert "why: it builds" in shown
    assert "fix: apt-get install mmdebstrap" in shown


def test_a_system_that_is_not_built_yet_is_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_built", lambda: None)
    step = doctor.check_host()[-1]
    assert step.next_step
    monkeypatch.setattr(doctor, "check_host", lambda: [FINE, step])
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0
    assert "next    " in done.stdout
    assert "run: shioenv system build" in done.stdout


def test_a_kernel_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "6.1.0-13-amd64")
    found = namespaces._kernel()
    assert not found.ok
    assert "bookworm-backports" in found.fix


def test_a_core_handler_of_the_host_is_named_and_nothing_more() -> None:
    found = namespaces._crashes("|/usr/lib/systemd/systemd-coredump %P %u")
    assert not found.ok
    assert not found.needed
    assert "kernel.core_pattern = core" in found.fix
    assert namespaces._crashes("core").ok


@pytest.mark.parametrize(("program", "package"), [("ip", "iproute2"), ("unshare", "util-linux")])
def test_what_cannot_be_tried_names_the_package_of_the_program_that_is_missing(
    program: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # its /tmp is another
        place = Path(name)
        place.chmod(0o755)
        for directory in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
            for path in Path(directory).iterdir():
                if path.name != program and not (place / path.name).is_symlink():
                    (place / path.name).symlink_to(path)
        monkeypatch.setenv("PATH", name)
        found = [check for check in namespaces._namespaces(find_idmap()) if not check.ok]
    assert {check.fix for check in found} == {f"apt-get install {package}"}
    assert all(program in check.detail for check in found)


def test_every_check_of_this_host_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_mirror", lambda: OPTIONAL)
    found = doctor.check_host()
    assert len({check.name for check in found}) == len(found) > 5
    for check in found:
        assert check.why
        assert check.detail
        assert check.ok or check.fix
