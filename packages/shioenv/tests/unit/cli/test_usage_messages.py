"""Errors for wrong usage, which users read first."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from shioenv.cli.commands import START, application
from shioenv.cli.main import app
from shioenv.cli.subcommands import KNOWN, PANELS
from support.needs import GUESTS, needs


def printed(*words: str) -> tuple[int, str]:
    """Return the exit status, and all output without frames and line ends."""
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_help_and_version_are_words_too() -> None:
    assert printed("version") == printed("--version")
    assert printed("help") == printed("--help")
    assert printed("help", "dataset", "show") == printed("dataset", "show", "--help")
    status, said = printed("help", "datset")
    assert status == 2
    assert "Did you mean 'dataset'?" in said


def test_without_arguments_five_commands_to_begin_with() -> None:
    status, said = printed()
    assert status == 0
    shown = re.findall(r"shioenv ([a-z]+)", START)
    assert shown[:5] == ["doctor", "system", "run", "generate", "dataset"]
    assert " ".join(START.split()) == said
    known: Any = typer.main.get_command(app)
    assert set(shown) <= set(known.commands)
    assert "--help" in said


@needs(*GUESTS)
def test_the_help_groups_the_commands_in_panels() -> None:
    status, said = printed("--help")
    assert status == 0
    places = [said.index(name) for name in PANELS]
    assert places == sorted(places)
    assert {name for names in PANELS.values() for name in names} == {
        path for path in KNOWN if "." not in path
    }


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("sample --count abc", "'abc' is not a whole number."),
        ("sample --count 1.5", "'1.5' is not a whole number."),
        ("sample --seed x", "'x' is not a whole number."),
        ("sample --mistakes some", "'some' is not a number."),
        ("run ls --timeout soon", "'soon' is not a number."),
        ("sample --count 0", "0 is not in the range x>=1."),
    ],
)
def test_a_value_of_another_kind(words: str, kind: str) -> None:
    status, said = printed(*words.split())
    assert status == 2
    assert kind in said


@needs("shioenv-eval")
def test_a_result_named_as_cp_names_it() -> None:
    status, said = printed("dataset", "export", "a set", "out.csv")
    assert status == 2
    assert "shioenv dataset export 'a set' --out out.csv" in said
    for words in (["dataset", "export", "set"], ["dataset", "export", "--format", "hf", "set"]):
        status, said = printed(*words)
        assert status == 2
        assert "with --out" not in said


def test_what_is_not_there_ends_with_2(tmp_path: Path) -> None:
    missing = str(tmp_path / "no")
    status, said = printed("dataset", "show", missing)
    assert status == 2
    assert "does not exist" in said


@pytest.mark.usefixtures("system")
def test_a_word_that_only_resembles_a_name_is_not_suggested() -> None:
    assert "did you mean" not in printed("sample", "--command", "nosuch")[1]
    assert "did you mean grep?" in printed("sample", "--command", "gerp")[1]
    assert "did you mean mkdir?" in printed("sample", "--command", "mkdr")[1]
    assert "did you mean gcs?" in printed("sample", "--sampler", "gsc")[1]


def test_a_cache_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "file"))
    for words in (["run", "ls"], ["system", "build"], ["system", "list"]):
        status, said = printed(*words)
        assert status == 1
        assert "file is not a directory" in said
        assert "build it again" not in said


def test_defaults_are_written_one_way() -> None:
    """Not as `[default: (32)]`, typer's format for a default that is a text."""
    for word in ("generate", "sample", "score", "model", "suite", "dataset", "experiment"):
        for command in _commands(application(word)):
            for option in command.params:
                assert not isinstance(getattr(option, "show_default", None), str), option.name


def _commands(typer_app: Any) -> list[Any]:
    def inner(command: Any) -> list[Any]:
        return [command, *(one for each in getattr(command, "commands", {}).values()
                           for one in inner(each))]  # fmt: skip

    return inner(typer.main.get_command(typer_app))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("sample --sampler gsc", "gcs"),
        ("sample --policy mixd", "mixed"),
        ("sample --command grpe", "grep"),
        ("generate made --sampler gsc", "gcs"),
        ("generate made --command grpe", "grep"),
        ("generate made --estimator balancd", "balanced"),
        ("score ls --estimator balancd", "balanced"),
        ("grammar show grpe", "grep"),
    ],
)
def test_an_unknown_name_is_reported_before_a_missing_system(
    words: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    status, said = printed(*words.split())
    assert status != 0
    assert f"did you mean {meant}?" in said
    assert "has not been built" not in said
