"""The predictors `memory` and `memory-plain` of a dataset that was executed here."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shioenv.behavior.observe import open_sandbox
from shioenv.cli.main import app
from shioenv.domain.predictor import Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, DatasetStorageError, ModelError, PredictorError
from shioenv.system.store import System
from shioenv_model.files import pack
from shioenv_model.memory.facts import Tree
from shioenv_model.memory.world import world_called
from shioenv_model.predictors.memory import Remembering, memory, plain_memory
from support.nightly import NIGHTLY

pytestmark = pytest.mark.xdist_group("memory")  # one dataset and one model for all
HOME = "/home/ubuntu"
INPUTS = (
    "ls -l documents/notes.txt",
    "touch data/new.txt",
    "cat nowhere.txt",
    "head -n 2 documents/names.txt",
    "echo hello > out.txt",
    *(f"cat missing{number}.txt" for number in range(20)),
    *(f"mkdir made{number}" for number in range(20)),
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, system: System) -> Path:
    from shioenv.dataset.external import CommandList, import_commands
    from shioenv.execution.local import SerialExecutor
    from shioenv.irreducibility.scoring import UNSCORED

    directory = tmp_path_factory.mktemp("memory")
    (directory / "inputs").write_text("".join(f"{text}\n" for text in INPUTS))
    import_commands(
        CommandList(directory / "inputs", start_directories=(HOME,)),
        directory / "dataset",
        scoring=UNSCORED,
        executor=SerialExecutor(),
    )
    return directory / "dataset"


@pytest.fixture(scope="module")
def remembered(
    dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Remembering, Remembering]:
    from shioenv_model.training.memory_training import train_memory

    directory = tmp_path_factory.mktemp("made") / "model"
    card = train_memory([dataset], directory, name="small", questions=40, seed=0)
    assert card["records"] == len(INPUTS)
    assert card["system"] == "debian-12"
    setting = Setting(str(directory), "debian-12", HOME)
    return memory(setting), plain_memory(setting)


KILLED = """
import os, signal, sys
from functools import partial
from pathlib import Path
from shioenv.files import unfinished
from shioenv_model.training.memory_training import train_memory
dataset, directory, cache, what, at = sys.argv[1:]
unfinished.cache_directory = lambda: Path(cache)
def report(doing, done, total):
    if (doing, done) == (what, int(at)):
        os.kill(os.getpid(), signal.SIGKILL)
train_memory([Path(dataset)], Path(directory), name="small", questions=40, seed=0, report=report)
"""


@NIGHTLY
def test_training_that_was_killed_goes_on(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shioenv_model.training import memory_training as training

    kept = tmp_path / "cache" / "unfinished"
    for what, at in (("the distance", 5), ("the trees", 9)):
        given = [dataset, tmp_path / "killed", tmp_path / "cache", what, at]
        words = [sys.executable, "-c", KILLED, *map(str, given)]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert len(list(kept.iterdir())) == 2
    monkeypatch.setattr("shioenv.files.unfinished.cache_directory", lambda: tmp_path / "cache")
    written: list[object] = []
    asked: list[int] = []
    told: list[tuple[str, int, int]] = []
    write, ask = training.write_memory, training._asked

    def noted_write(*given: Any) -> int:
        written.append(given)
        return write(*given)

    def noted_ask(memory: Any, number: int) -> Any:
        asked.append(number)
        return ask(memory, number)

    monkeypatch.setattr(training, "write_memory", noted_write)
    monkeypatch.setattr(training, "_asked", noted_ask)

    def train(directory: Path, questions: int = 40, seed: int = 0) -> dict[str, bytes]:
        written.clear()
        asked.clear()
        told.clear()
        training.train_memory(
            [dataset], directory, name="small", questions=questions, seed=seed,
            report=lambda *counts: told.append(counts),
        )  # fmt: skip
        return {path.name: path.read_bytes() for path in directory.iterdir()}

    again = train(tmp_path / "again")
    assert not written
    trees = [one for one in told if one[0] == "the trees"]
    assert trees[0][1] == 9
    assert len(asked) == trees[0][2] - 9
    assert not list(kept.iterdir())
    assert train(tmp_path / "whole") == again
    assert written
    assert len(asked) == trees[0][2] + 13


def test_what_was_learned_is_kept_until_the_model_is_written(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shioenv_model.training import memory_training as training

    monkeypatch.setattr("shioenv.files.unfinished.cache_directory", lambda: tmp_path / "cache")
    asked: list[int] = []
    ask = training._asked

    def noted_ask(memory: Any, number: int) -> Any:
        asked.append(number)
        return ask(memory, number)

    monkeypatch.setattr(training, "_asked", noted_ask)

    def train(directory: Path, out: Path) -> None:
        asked.clear()
        training.train_memory(
            [dataset], directory, name="small", questions=40, seed=0, write=partial(pack, file=out)
        )

    with pytest.raises(DatasetStorageError):
        train(tmp_path / "first", tmp_path)
    assert asked
    train(tmp_path / "second", tmp_path / "small.model")
    assert not asked
    assert (tmp_path / "small.model").is_file()
    assert not list((tmp_path / "cache" / "unfinished").iterdir())


def test_a_dataset_of_another_build_is_refused(
    dataset: Path, tmp_path: Path, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shioenv_model.training.material import system_of
    from shioenv_model.training.memory_training import train_memory

    assert system_of(dataset).digest == system.digest
    rebuilt = replace(system, digest="0" * 64)
    monkeypatch.setattr("shioenv_model.training.material.find_system", lambda name=None: rebuilt)
    monkeypatch.setattr("shioenv.files.unfinished.cache_directory", lambda: tmp_path / "cache")
    with pytest.raises(ModelError, match="has the digest 000000000000"):
        train_memory([dataset], tmp_path / "model", name="small", questions=5, seed=0)


@NIGHTLY
def test_training_by_another_plan_takes_no_questions_over(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shioenv_model.training import memory_training as training

    given = [dataset, tmp_path / "killed", tmp_path / "cache", "the trees", 9]
    words = [sys.executable, "-c", KILLED, *map(str, given)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr("shioenv.files.unfinished.cache_directory", lambda: tmp_path / "cache")
    told: list[tuple[str, int, int]] = []
    training.train_memory(
        [dataset], tmp_path / "other", name="small", questions=40, seed=1,
        report=lambda *counts: told.append(counts),
    )  # fmt: skip
    assert ("the trees", 0) in {one[:2] for one in told}


def test_records_are_added_to_a_model(
    dataset: Path, tmp_path: Path, remembered: tuple[Remembering, Remembering]
) -> None:
    from shioenv.dataset.external import CommandList, import_commands
    from shioenv.irreducibility.scoring import UNSCORED
    from shioenv_model.training.memory_training import extend_memory, train_memory

    base = tmp_path / "base"
    known = train_memory([dataset], base, name="small", questions=40, seed=0)
    (tmp_path / "inputs").write_text("lsmod\ncat missing1.txt\necho more; lsmod\n")
    import_commands(
        CommandList(tmp_path / "inputs", start_directories=(HOME,)),
        tmp_path / "more",
        scoring=UNSCORED,
    )
    made = tmp_path / "made"
    card = extend_memory(base, [tmp_path / "more"], made, name="larger")
    assert (card["name"], card["records"]) == ("larger", known["records"] + 2)
    assert len(card["material"]) == 2
    assert card["learned"] == known["learned"]
    assert (made / "ranker.npz").read_bytes() == (base / "ranker.npz").read_bytes()
    larger = memory(Setting(str(made), "debian-12", HOME))
    assert b"Module" in asked(larger, "lsmod").behavior.output
    for text in ("cat nowhere.txt", "cat gone.txt", "echo hello > out.txt"):
        assert asked(larger, text).behavior == asked(remembered[0], text).behavior
    (base / "model.json").write_text(json.dumps({**known, "kind": "table"}))
    with pytest.raises(ModelError, match="is not a memory"):
        extend_memory(base, [tmp_path / "more"], tmp_path / "other", name="larger")


def test_records_of_another_machine_are_added_beside_a_model(
    dataset: Path, tmp_path: Path, remembered: tuple[Remembering, Remembering]
) -> None:
    from shioenv.dataset.external import CommandList, import_commands
    from shioenv.irreducibility.scoring import UNSCORED
    from shioenv_model.files import load_model
    from shioenv_model.training.memory_training import extend_memory, train_memory

    base = tmp_path / "base"
    known = train_memory([dataset], base, name="small", questions=40, seed=0)
    (base / "model.json").write_text(json.dumps({**known, "system_digest": "0" * 64}))
    (tmp_path / "inputs").write_text("lsmod\necho more; lsmod\n")
    own = CommandList(tmp_path / "inputs", start_directories=(HOME,))
    import_commands(own, tmp_path / "own", scoring=UNSCORED)
    card = extend_memory(base, [tmp_path / "own"], tmp_path / "made", name="larger")
    assert (card["records"], card["base"]["name"]) == (2, str(base))
    larger = memory(Setting(str(tmp_path / "made"), "debian-12", HOME))
    assert b"Module" in asked(larger, "lsmod").behavior.output
    assert asked(larger, "cat gone.txt").behavior == asked(remembered[0], "cat gone.txt").behavior
    assert load_model(tmp_path / "made").system == "debian-12"
    head = (base / "index.json").read_bytes()
    (base / "index.json").write_bytes(head + b"\n")
    with pytest.raises(ModelError, match=f"adds to the model {base}"):
        load_model(tmp_path / "made")


def asked(predictor: Remembering, text: str) -> Answer:
    return predictor.answer(text, State(cwd=HOME))


def test_the_same_input_has_the_same_answer(remembered: tuple[Remembering, Remembering]) -> None:
    for predictor in remembered:
        answer = asked(predictor, "cat nowhere.txt")
        assert answer.confidence > 0.9
        assert answer.behavior.output == b"cat: nowhere.txt: No such file or directory\n"
        assert answer.behavior.exit_code == 1
        assert asked(predictor, "echo hello > out.txt").behavior.patch


def test_words_of_the_same_class_are_filled_in(
    remembered: tuple[Remembering, Remembering],
) -> None:
    filling, plain = remembered
    answer = asked(filling, "cat gone.txt")
    assert answer.behavior.output == b"cat: gone.txt: No such file or directory\n"
    touched = asked(filling, "touch tmp/other.md").behavior.patch
    assert [operation[:2] for operation in touched.operations] == [("a", "/fs/tmp~1other.md")]
    assert b"gone.txt" not in asked(plain, "cat gone.txt").behavior.output


def test_the_nearest_are_shown(remembered: tuple[Remembering, Remembering]) -> None:
    near = remembered[0].nearest("head -n 3 documents/names.txt", HOME, 2)
    assert [each.text for each in near] == ["head -n 2 documents/names.txt"]
    assert near[0].behavior.exit_code == 0


def test_what_is_like_nothing_is_declined(remembered: tuple[Remembering, Remembering]) -> None:
    for predictor in remembered:
        with pytest.raises(Abstained):
            asked(predictor, "wc -l documents/notes.txt")


def test_a_memory_needs_a_dataset(tmp_path: Path) -> None:
    with pytest.raises(PredictorError):
        memory(Setting("", "debian-12", HOME))
    with pytest.raises(ModelError):
        memory(Setting(str(tmp_path / "nothing"), "debian-12", HOME))


def test_predict_speaks_of_the_system_that_it_is_asked_about(
    dataset: Path, remembered: tuple[Remembering, Remembering], tmp_path: Path
) -> None:
    """The model was recorded on a machine with another name whose clock was a day and an hour
    earlier."""
    filling, _ = remembered
    shutil.copytree(filling.memory.index.directory, tmp_path / "model")
    world = tmp_path / "model" / "world.json"
    now = re.search(rb"btime (\d+)", world.read_bytes())
    assert now is not None
    earlier = b"btime %d" % (int(now[1]) - 25 * 3600)
    world.write_bytes(world.read_bytes().replace(now[0], earlier))
    card = tmp_path / "model" / "model.json"
    card.write_text(card.read_text().replace('"debian-12"', '"another"'))
    given = ["predict", "touch -a new.txt", "--model", str(tmp_path / "model"), "--json"]
    own, there = (
        json.loads(CliRunner().invoke(app, [*given, *system]).stdout)
        for system in ((), ("--system", "debian-12"))
    )
    assert there["model"].endswith("asked about another machine")
    (_, _, here), (_, name, made) = own["context_patch"][0], there["context_patch"][0]
    assert (here["day"], here["time"]) == (16, "19:43")
    assert (made["day"], made["time"]) == (17, "20:43")
    assert name == "/fs/new.txt"
    refused = CliRunner().invoke(app, [*given, "--system", "nowhere"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "unknown system 'nowhere'" in refused.stderr


def test_a_tree_is_walked_in_the_order_of_the_sandbox(system: System) -> None:
    world = world_called(system.name)
    with open_sandbox(system.name) as sandbox:
        for directory in (".", "data", "/etc"):
            said = sandbox.run(f"find {directory} -print0").output.decode()
            tree = Tree(directory, world.state())
            assert tree.entries is not None
            assert said.split("\0")[1:-1] == [f"{directory}/{path}" for path, _ in tree.entries]
