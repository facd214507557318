"""Files of the host that `scripts/fresh.sh` takes into a new root."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "fresh.sh"
FUNCTIONS = ("registry_environment", "registry_directories", "mirror")


def said(function: str, uri: str, place: Path) -> list[str]:
    """Return the output of a function of the script where apt has this address, and pip none."""
    for name, text in (("apt-get", f"echo {uri}; echo http://second.test"), ("python3", "true")):
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    ranges = "".join(f"/^{name}() {{/,/^}}/p;" for name in FUNCTIONS)
    done = subprocess.run(
        ["bash", "-euc", f'. <(sed -n "$1" "$2"); {function}', "bash", ranges, str(SCRIPT)],
        env={"PATH": f"{place}:/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("scheme", ["file:", "file://", "copy:", "copy://"])
def test_a_directory_with_packages_is_mounted_and_copied_from(scheme: str, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    assert said("mirror Debian", f"{scheme}{mirror}/", tmp_path) == [f"copy:{mirror}"]
    assert said("registry_directories", f"{scheme}{mirror}/", tmp_path) == [str(mirror)]


def test_an_archive_behind_http_needs_no_directory(tmp_path: Path) -> None:
    assert said("mirror Debian", "http://a.test/debian/", tmp_path) == ["http://a.test/debian"]
    assert said("registry_directories", "http://a.test/debian/", tmp_path) == []


def test_what_a_wheel_needs_is_what_the_page_says() -> None:
    asked = [line for line in SCRIPT.read_text().splitlines() if "installed=$(sed" in line]
    (line,) = [line for line in asked if "install.md" in line]
    done = subprocess.run(
        ["bash", "-euc", f"{line}; echo $installed"],
        cwd=ROOT / "docs/how-to", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {"python3-venv", "uidmap", "mmdebstrap"} <= set(done.stdout.split())


def test_the_commands_of_the_harbor_page_are_found() -> None:
    text = (ROOT / "scripts/fresh.sh").read_text()
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith("commands=$(sed")]
    script = f'page=docs/how-to/harbor.md; {line}; echo "$commands"'
    done = subprocess.run(
        ["bash", "-euc", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("python3 -m venv env")
    assert lines[-1].startswith("harbor run")


def test_continuous_integration_runs_skipped_tests_of_its_machine() -> None:
    """Root runs all tests there, and an ordinary user some of them."""
    run = (ROOT / ".ci/run").read_text()
    (machine,) = re.findall(r"^stage make fresh MACHINES=(\S+)$", run, re.MULTILINE)
    (skipped,) = re.findall(
        r"^stage make test-skipped SKIPPED=build/fresh/(\S+)\.skipped$", run, re.M
    )
    assert machine.endswith(":root+user")
    assert skipped == machine.replace(":", "-")


def test_a_stage_that_fails_is_reported_with_its_tests_and_hides_no_later_one(
    tmp_path: Path,
) -> None:
    text = (ROOT / ".ci/run").read_text()
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run").write_text(text)
    make = tmp_path / "make"
    failing = 'check) echo "FAILED tests/a.py::b - why"; exit 1;;'
    make.write_text(f"#!/bin/sh\ncase $1 in {failing} --dry-run) exit 1;; esac\n")
    make.chmod(0o755)
    done = subprocess.run(
        ["bash", ".ci/run"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    summary = done.stdout.partition("== .ci/run: ")[2].splitlines()[1:]
    stages = re.findall(r"^stage (make [\w.-]+/?[\w.-]*)", text, re.MULTILINE)
    assert len(stages) > 5
    (failed,) = [line for line in summary if "FAILED" in line]
    assert failed.split() == ["FAILED", "tests/a.py::b", "-", "why"]
    assert "make check" in summary[summary.index(failed) - 1]
    summary.remove(failed)
    told = [re.fullmatch(r" *\d+ s  exit status (\d)  (make \S+).*", line) for line in summary]
    assert [each and each[2] for each in told] == stages
    assert [each[2] for each in told if each and each[1] != "0"] == ["make check"]


def planned(*words: str) -> list[list[str]]:
    """The commands that make would run, split into words."""
    done = subprocess.run(
        ["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [line.split() for line in done.stdout.splitlines()]


def test_every_night_all_machines_are_followed() -> None:
    assert ["scripts/fresh.sh"] in planned("nightly"), "without a name it follows all"


def test_what_an_ordinary_user_runs_are_tests() -> None:
    (words,) = [words for words in planned("test-user") if words[0].endswith("/pytest")]
    paths = [word for word in words if word.startswith(("tests/", "packages/"))]
    assert len(paths) > 3
    for path in paths:
        assert (ROOT / path).exists(), path


def test_the_tests_of_one_package_can_be_run() -> None:
    steps = [" ".join(words) for words in planned("test", "PACKAGE=shioenv-model")]
    runs = [step for step in steps if "/pytest " in step]
    assert ["--layer=first" in run for run in runs] == [True, False]
    assert all("packages/shioenv-model/tests" in run for run in runs)
