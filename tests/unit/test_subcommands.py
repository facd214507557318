"""Subcommands of other packages: missing, broken, declared twice, and in their places."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from shioenv.cli import subcommands
from shioenv.cli.commands import application
from shioenv.errors import install_command

CORE = [path for path, extra in subcommands.KNOWN.items() if not extra and "." not in path]
MODULE = """\
import typer

app, crowd = typer.Typer(), typer.Typer(name="crowd", help="A group.")


def say(text: str = "{name}") -> None:
    "Say who this is."
    print(text)


for name in {commands!r}:
    app.command(name)(say)
crowd.command("one")(say)
crowd.command("two")(say)
"""
Install = Callable[..., None]


@pytest.fixture(autouse=True)
def fresh_tree() -> Iterator[None]:
    application.cache_clear()
    yield
    application.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with commands; each prints the package's name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(package: str, *commands: str, value: str | None = None) -> None:
        module = package.replace("-", "_")
        monkeypatch.delitem(sys.modules, module, raising=False)
        names = [command.split(".")[-1] for command in commands]
        text = MODULE.replace("{name}", package).replace("{commands!r}", repr(names))
        (tmp_path / f"{module}.py").write_text(text)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0")
        lines = [f"{command} = {value or f'{module}:app'}" for command in commands]
        (metadata / "entry_points.txt").write_text(
            "\n".join([f"[{subcommands.GROUP}]", *lines, ""])
        )

    return add


@pytest.fixture
def core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the declarations of all other packages."""
    monkeypatch.setattr(subcommands, "GROUP", "shioenv.none")


class Called:
    """The result of a command line, with its standard error."""

    def __init__(self, *words: str) -> None:
        with redirect_stderr(StringIO()) as printed:
            app = application(*words[:2])
        result = CliRunner().invoke(app, words, prog_name="shioenv")
        self.exit_code, self.stdout = result.exit_code, result.stdout
        self.stderr = printed.getvalue() + result.stderr


def listed(*words: str) -> list[str]:
    """Return the visible commands of the group that the words name, in order."""
    group: Any = typer.main.get_command(application(*words))
    for word in words:
        group = group.commands[word]
    return [name for name, command in group.commands.items() if not command.hidden]


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["preview", "rm x"], "agents"),
        (["preview", "--help"], "agents"),
        (["tasks", "make", "./dataset", "--out", "x"], "agents"),
        (["predict", "-v"], "model"),
        (["serve"], "serve"),
        (["serve", "ssh", "./visits"], "serve"),
        (["serve", "openenv", "./tasks.jsonl"], "agents"),
        (["dataset", "report", "./dataset"], "eval"),
        (["grammar", "report", "--help"], "eval"),
    ],
)
def test_a_missing_package_is_named_in_one_line(
    words: list[str], extra: str, core_alone: None
) -> None:
    result = Called(*words)
    assert result.exit_code == 3
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    depth = 2 if ".".join(words[:2]) in subcommands.KNOWN else 1
    command = " ".join(["shioenv", *words[:depth]])
    assert line == (
        f"error: {command} needs shioenv-{extra}, which is not installed: "
        f"{install_command(extra)} (SHIO-H02)"
    )


def test_help_lists_no_command_of_a_missing_package(core_alone: None) -> None:
    assert listed() == CORE
    assert "report" not in listed("dataset")
    assert "report" not in listed("grammar")
    for words in (["--help"], ["dataset", "--help"], ["help", "grammar"]):
        result = Called(*words)
        assert result.exit_code == 0
        assert result.stderr == ""


def test_a_missing_format_of_imports_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shioenv.dataset.importers.GROUP", "shioenv.none")
    monkeypatch.setattr("shioenv.dataset.importers.READERS", "shioenv.none")
    (tmp_path / "rows").write_text('{"input": "ls", "output": "", "exit_code": 0}\n')
    made = str(tmp_path / "made")
    for name, status, said in (
        ("released", 3, "'shioenv[paper]'"),
        ("sessions", 3, "'shioenv[serve]'"),
        ("records", 3, "'shioenv[eval]'"),
        ("relaesed", 2, "did you mean released?"),
    ):
        words = ["dataset", "import", str(tmp_path / "rows"), "--out", made, "--format", name]
        result = Called(*words)
        assert result.exit_code == status
        assert said in result.stderr
    assert not (tmp_path / "made").exists()


def test_known_commands_come_in_the_order_of_the_table() -> None:
    assert listed() == [path for path in subcommands.KNOWN if "." not in path]
    for word in ("grammar", "serve"):
        paths = [path for path in subcommands.KNOWN if path.startswith(f"{word}.")]
        assert [f"{word}.{name}" for name in listed(word)] == paths
    assert listed("dataset")[-1] == "report"


def test_other_commands_follow_sorted(install: Install) -> None:
    install("zoo", "zeta", "dataset.zeta", "serve.alpha", "own.two")
    install("farm", "alpha", "dataset.alpha", "own.one")
    assert listed()[-4:] == ["experiment", "alpha", "own", "zeta"]
    assert listed("dataset")[-3:] == ["report", "alpha", "zeta"]
    assert listed("serve")[-2:] == ["replay", "alpha"]
    assert listed("own") == ["one", "two"]
    assert Called("alpha").stdout == "farm\n"
    assert Called("dataset", "zeta").stdout == "zoo\n"
    assert Called("own", "two", "--text", "x").stdout == "x\n"


def test_a_group_of_a_package(install: Install) -> None:
    install("zoo", "crowd", value="zoo:crowd")
    install("farm", "crowd.three")
    assert listed("crowd") == ["one", "two", "three"]
    assert Called("crowd", "two").stdout == "zoo\n"
    assert Called("crowd", "three").stdout == "farm\n"


@pytest.mark.parametrize(
    "value", ["nowhere_at_all:app", "zoo:nothing", "zoo:typer", "zoo:crowd.nothing", "zoo"]
)
def test_a_broken_package_breaks_its_own_command_alone(install: Install, value: str) -> None:
    install("zoo", "bad", "dataset.bad", "predict", value=value)
    for words in (["bad"], ["bad", "--help"], ["dataset", "bad"]):
        result = Called(*words)
        assert result.exit_code == 3, words
        assert result.stderr.count("\n") == 1
        assert f"of zoo cannot be loaded from {value}: " in result.stderr
    for words, broken in ((["--help"], "shioenv bad of zoo"), (["dataset", "-h"], "dataset bad")):
        result = Called(*words)
        assert result.exit_code == 0
        assert broken in result.stderr
        assert " bad " not in result.stdout
    assert Called("predict", "--help").exit_code == 0
    assert Called("doctor", "--help").stderr == ""


def test_a_package_that_ends_the_program_does_not_end_the_help(
    install: Install, tmp_path: Path
) -> None:
    install("zoo", "bad")
    (tmp_path / "zoo.py").write_text("raise SystemExit(7)")
    result = Called("--help")
    assert result.exit_code == 0
    assert "SystemExit: 7" in result.stderr


def test_the_first_of_two_packages_with_one_command_is_used(install: Install) -> None:
    install("zoo", "twice", "predict", "doctor", "dataset.show")
    install("farm", "twice")
    assert Called("twice").stdout == "farm\n"
    told = Called("--help").stderr.splitlines()
    assert told == [
        "shioenv dataset show of zoo is ignored: shioenv provides this command",
        "shioenv doctor of zoo is ignored: shioenv provides this command",
        "shioenv predict of zoo is ignored: shioenv-model provides this command",
        "shioenv twice of zoo is ignored: farm provides this command",
    ]
    assert "Say who this is." not in Called("predict", "--help").stdout
    assert "Say who this is." not in Called("dataset", "show", "--help").stdout


@pytest.mark.parametrize("name", [".", ".one", "one.", "one.two.three", "-x", "one two"])
def test_a_name_that_no_command_can_have(install: Install, name: str) -> None:
    install("zoo", name)
    result = Called("--help")
    assert result.exit_code == 0
    assert result.stderr == f"{name!r} of zoo is ignored: not NAME or GROUP.NAME\n"
    assert listed()[-1] == "experiment"


def test_completion_gets_no_remarks(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("zoo", "doctor", "dataset.zeta")
    monkeypatch.setenv("_SHIOENV_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "shioenv dataset z")
    monkeypatch.setenv("COMP_CWORD", "2")
    result = Called()
    assert result.stdout.split() == ["zeta"]
    assert result.stderr == ""


@pytest.mark.parametrize(
    "words",
    [["run", "ls"], ["dataset", "leakage"], ["predict", "ls"], ["serve", "ssh"], ["tasks", "make"]],
)
def test_a_known_command_looks_into_its_own_package_alone(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError("all packages were read")

    monkeypatch.setattr(importlib.metadata, "entry_points", refuse)
    assert [group.typer_instance for group in application(*words).registered_groups]


def test_a_command_that_no_package_has_is_unknown() -> None:
    result = Called("frobnicate")
    assert result.exit_code == 2
    assert "No such command 'frobnicate'" in result.stderr
