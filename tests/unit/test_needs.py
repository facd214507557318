"""Tests declare requirements in one way, and one command installs all that can be installed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.needs import NEEDS, PROGRAMS, Need, lacked, needs, told, with_sbin
from support.paths import ROOT
from support.sources import DISTRIBUTIONS

SETUP = ROOT / "scripts" / "setup.sh"
TESTS = (ROOT / "tests", *(home / "tests" for home in DISTRIBUTIONS.values()))
SKIPPING = {"skip", "skipif", "importorskip", "SkipTest", "skipTest"}


def _skips() -> Iterator[str]:
    for path in (path for folder in TESTS for path in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in SKIPPING):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr in SKIPPING:
                yield str(path.relative_to(ROOT))


def test_nothing_else_skips() -> None:
    assert set(_skips()) == {"tests/support/needs.py"}


def test_setup_all_installs_the_package_of_every_program() -> None:
    text = SETUP.read_text(encoding="utf-8")
    block = text.partition("for_tests='\n")[2].partition("'")[0]
    installed = {program: package for package, program in map(str.split, block.splitlines())}
    assert set(installed.values()) == set(PROGRAMS.values())
    assert installed.items() <= PROGRAMS.items()


@needs("mkfs.ext4")
def test_programs_of_the_administrator_are_found_by_ordinary_users(tmp_path: Path) -> None:
    """Their PATH has no /usr/sbin; installed programs are neither skipped nor requested."""
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    command = ["/bin/sh", str(SETUP), "all"]
    done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert "e2fsprogs" not in done.stderr
    asked = "import conftest; from support.needs import NEEDS; print(NEEDS['mkfs.ext4'].met())"
    command = [sys.executable, "-c", asked]
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path, "PYTHONPATH": "tests"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == "True\n"


def test_search_paths_get_each_directory_once() -> None:
    assert with_sbin("/usr/bin:/sbin") == "/usr/bin:/sbin:/usr/local/sbin:/usr/sbin"
    assert with_sbin(with_sbin("/a")) == with_sbin("/a")


def test_what_is_not_installed_says_where_its_tests_run() -> None:
    assert all(bool(need.package) != bool(need.otherwise) for need in NEEDS.values())


def test_a_mark_names_what_is_missing_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDS, "there", Need(lambda: True, "a"))
    monkeypatch.setitem(NEEDS, "gone", Need(lambda: False, "b"))
    monkeypatch.setitem(NEEDS, "lost", Need(lambda: False, "c"))
    mark = needs("there", "gone", "lost").mark
    assert (mark.args, mark.kwargs) == ((True,), {"reason": "needs gone, lost"})
    assert needs("there").mark.args == (False,)
    with pytest.raises(KeyError):
        needs("qemu")


def _skipped(test: str, reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        test, ("", None, ""), {}, "skipped", ("a.py", 1, f"Skipped: {reason}"), "setup"
    )


def test_one_line_says_what_is_wanted_and_the_command_that_installs_it() -> None:
    found = lacked(
        [
            _skipped("b", "needs mkfs.xfs, root"),
            _skipped("c", "needs mkfs.xfs, zstd"),
            _skipped("a[me@host]@two words", "needs torch"),
        ]
    )
    assert list(found) == ["a[me@host]", "b", "c"]
    assert told(found) == (
        "3 skipped for want of xfsprogs 2, zstd 1 (`make setup-all`, as root, installs all of "
        "these); root 1 (a right: the suite run by root); torch 1 (larger than all the rest: "
        "`make test-train`)"
    )
    with pytest.raises(AssertionError, match="d is skipped by other means: why not"):
        lacked([_skipped("d", "why not")])
