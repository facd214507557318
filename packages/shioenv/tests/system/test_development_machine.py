"""The development machine: its programs, its repository, records and shells on it."""

from __future__ import annotations

from pathlib import Path

import pytest

import shioenv
from shioenv.dataset.verify import verify
from shioenv.system.packages import lock_text, parse_lock
from shioenv.system.store import find_system
from support.needs import needs

SYSTEM, PROJECT = "debian-12-dev", "/home/ubuntu/project"

pytestmark = [needs(SYSTEM), pytest.mark.xdist_group("development machine")]

MOST_BYTES = 1_200_000_000
"""Maximum size of the machine's files (our choice)."""


def test_it_is_the_one_of_its_lock() -> None:
    system = find_system(SYSTEM)
    lock = parse_lock(lock_text(SYSTEM) or "", "debian-12-dev.lock")
    assert system.digest == lock.digest
    assert dict(system.packages) == {package.name: package.version for package in lock.files}
    assert system.facts["bytes"] < MOST_BYTES
    tools = {"git", "jq", "python3", "pip", "make", "gcc", "curl", "tmux", "vim", "sqlite3", "less"}
    assert {*tools, "man"} <= system.programs


def test_looking_at_the_repository_changes_nothing() -> None:
    with shioenv.open_sandbox(SYSTEM) as machine:
        for line in ("git status", "git diff", "git log -p", "git stash list", "make -n all"):
            behavior = machine.run(f"cd project && {line}")
            assert behavior.exit_code == 0, behavior.text
            assert [one for one in behavior.patch.operations if one[1].startswith("/fs")] == []


def test_a_commit_has_the_same_hash_on_every_machine() -> None:
    row = "cd project && git commit -qam 'Name the currency' && git rev-parse HEAD"
    limits = shioenv.Limits(wall_seconds=20)
    with shioenv.open_sandbox(SYSTEM, limits=limits) as machine:
        assert machine.run(row).output == machine.run(row).output


def test_a_shell_repairs_builds_and_asks() -> None:
    limits = shioenv.Limits(wall_seconds=30)
    with shioenv.open_shell(SYSTEM, cwd=PROJECT, limits=limits) as shell:
        assert "2 failed" in shell.run("make -s test").text
        shell.run("git show v1.0:stock/prices.py > stock/prices.py")
        assert "0 failed" in shell.run("make -s test").text
        assert shell.run("make -s && build/count < Makefile").text == "20\n"
        assert shell.run("jq length data/items.json").text == "10\n"
        shell.run("make -s stock.db")
        assert shell.run("sqlite3 stock.db 'select count(*) from orders'").text == "3\n"
        names = {shioenv.file_name(str(one[1])) for one in shell.patch().operations}
        assert {"stock/prices.py", "build/count", "stock.db"} <= names


def test_records_are_drawn_from_the_machines_own_grammars(tmp_path: Path) -> None:
    commands = ("git-log", "git-status", "jq")
    shioenv.generate(
        tmp_path / "made", count=4, seed=3, system=SYSTEM, own_grammars=SYSTEM,
        commands=commands, composite_share=0,
    )  # fmt: skip
    assert verify(tmp_path / "made").problems == ()
    records = [*shioenv.read_records(tmp_path / "made")]
    assert {record.typed.split()[0] for record in records} <= {"git", "jq"}
    assert all(record.irreducibility is not None for record in records)


def test_scores_know_the_options_of_its_commands() -> None:
    score = shioenv.score("git -C /home/ubuntu/project log --oneline -n 1", system=SYSTEM)
    assert score.irreducibility is not None
    assert score.n_arguments == 4  # `-C DIR` and `-n 1` are one argument each
