"""`shioenv predict`, `shioenv model` and recipes on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.errors import ModelError
from shioenv_model.files import pack, write_card
from shioenv_model.training.material import RECIPES, find_recipe, read_recipe, recipe_names
from support.small_world import HOME, small_memory

RUNNER = CliRunner()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "made"
    small_memory(directory)
    write_card(
        directory,
        {"name": "small", "system": "debian-12", "system_digest": "5" * 64, "records": 11},
    )
    file = tmp_path / "cache" / "models" / "small.model"
    pack(directory, file)
    return file


def test_predict_says_what_an_input_does(model: Path) -> None:
    done = RUNNER.invoke(app, ["predict", "cat nothere", "--model", "small"])
    assert done.exit_code == 0, done.output
    assert done.stdout == "cat: nothere: No such file or directory\n"
    assert "exit code 1, confidence 0." in done.stderr


def test_predict_explains_and_prints_json(model: Path) -> None:
    explained = RUNNER.invoke(
        app, ["predict", "cat nothere; pwd", "--model", str(model), "--explain"]
    )
    assert "away: cat gone" in explained.stderr
    done = RUNNER.invoke(app, ["predict", "cat nothere; pwd", "--model", "small", "--json"])
    document = json.loads(done.stdout)
    assert document["output"].endswith(f"{HOME}\n")
    assert document["exit_code"] == 0
    assert [step["input"] for step in document["steps"]] == ["cat nothere", "pwd"]
    assert document["steps"][0]["nearest"][0]["input"] == "cat gone"
    assert 0 < document["confidence"] < 1


def test_predict_leaves_out_sources(model: Path) -> None:
    given = ["predict", "cat a.txt; basename a/b", "--model", "small", "--json"]
    left_out = ["--without", "rules", "--without", "records"]
    steps = json.loads(RUNNER.invoke(app, [*given, *left_out]).stdout)["steps"]
    assert "found from" in steps[0]["source"]
    assert steps[1]["source"] == "no directory of PATH holds it"
    refused = RUNNER.invoke(app, [*given, "--without", "rulez"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "did you mean rules?" in refused.stderr


def test_predict_names_who_may_answer_for_stages(model: Path) -> None:
    done = RUNNER.invoke(app, ["predict", "cat a.txt | sort", "--model", "small", "--stages", "ed"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "stages=bashkit" in done.stderr


def test_predict_knows_what_was_typed_before(model: Path, tmp_path: Path) -> None:
    (tmp_path / "before").write_text("rm a.txt\n\necho hi > new.txt\n")
    given = ["predict", "head -n 1 < new.txt", "--history", str(tmp_path / "before")]
    done = RUNNER.invoke(app, [*given, "--model", "small"])
    assert done.stdout == "hi\n"


def test_predict_answers_lines_of_standard_input(model: Path, tmp_path: Path) -> None:
    lines = [
        "cat nothere",
        '{"input": "head -n 1 < new.txt", "history": ["echo hi > new.txt"], "id": "b"}',
        '{"input": "pwd", "cwd": "/nope"}',
        '{"input": "pwd", "cwd": "/"}',
    ]
    given = ["predict", "-", "--model", "small"]
    done = RUNNER.invoke(app, given, input="\n".join(lines))
    assert done.exit_code == 1
    found = [json.loads(line) for line in done.stdout.splitlines()]
    alone = RUNNER.invoke(app, ["predict", "cat nothere", "--model", "small", "--json"])
    assert found[0] == json.loads(alone.stdout)
    assert (found[1]["output"], found[1]["id"]) == ("hi\n", "b")
    assert (found[2]["line"], found[2]["code"]) == (3, "SHIO-S09")
    assert found[3]["output"] == "/\n"

    (tmp_path / "before").write_text("echo of a file > new.txt\n")
    typed = ["--history", str(tmp_path / "before")]
    done = RUNNER.invoke(app, [*given, *typed], input="cat new.txt\n" + lines[1])
    outputs = [json.loads(line)["output"] for line in done.stdout.splitlines()]
    assert outputs == ["of a file\n", "hi\n"], "the history of a line replaces that of the file"
    done = RUNNER.invoke(app, [*given, "--history", "-"], input="ls\n")
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "given",
    [
        ["predict", "ls", "--model", "nosuch"],
        ["predict", "pwd", "--model", "small", "--cwd", "/nowhere"],
        ["predict", "pwd", "--model", "small", "--history", "/nowhere"],
        ["model", "show", "nosuch"],
        ["train", "material", "nosuch", "--out", "x"],
    ],
)
def test_what_is_not_there_is_refused(model: Path, given: list[str]) -> None:
    done = RUNNER.invoke(app, given)
    assert done.exit_code in (1, 2)
    assert "SHIO" in done.output or "error" in done.output


def test_models_are_listed_and_shown(model: Path) -> None:
    listed = json.loads(RUNNER.invoke(app, ["model", "list", "--json"]).stdout)
    assert listed["small"]["file"] == str(model)
    shown = RUNNER.invoke(app, ["model", "show", "small"])
    assert "debian-12 555555555555" in shown.stdout


def test_shipped_recipes_are_recipes() -> None:
    assert {"default", "small"} <= set(recipe_names())
    for name in recipe_names():
        recipe = read_recipe(find_recipe(name))
        assert sum(part.count for part in recipe.part) > 0
    assert find_recipe("small") == RECIPES / "small.toml"


def test_a_recipe_may_begin_with_a_mark_of_the_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xef\xbb\xbf" + find_recipe("small").read_bytes())
    assert read_recipe(path) == read_recipe(find_recipe("small"))


@pytest.mark.parametrize(
    "text",
    [
        "schema = 2\n[[part]]\nname = 'a'\ncount = 1\nseed = 1\n",
        "schema = 1\npart = []\n",
        "schema = 1\n[[part]]\nname = '../a'\ncount = 1\nseed = 1\n",
        "schema = 1\n[[part]]\nname = 'a'\ncount = 1\nseed = 1\nother = 1\n",
        "schema = 1\n[[part]]\nname = 'a'\ncount = 'x'\nseed = 1\n",
        "= 1",
    ],
)
def test_what_is_no_recipe_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ModelError):
        read_recipe(path)
