"""A memory of executed inputs, asked about the same, about neighbours, about strangers."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, PredictorError, UnknownDatasetError
from shioenv.evaluation.predictor import Setting
from shioenv.evaluation.predictors.memory import Memory, memory, plain_memory
from shioenv.system.store import System

HOME = "/home/ubuntu"
INPUTS = (
    "ls -l documents/notes.txt",
    "touch data/new.txt",
    "cat nowhere.txt",
    "head -n 2 documents/names.txt",
    "echo hello > out.txt",
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, system: System) -> Path:
    from shioenv.dataset.external import CommandList, import_commands
    from shioenv.execution.local import SerialExecutor
    from shioenv.irreducibility.scoring import Scoring

    directory = tmp_path_factory.mktemp("memory")
    (directory / "inputs").write_text("".join(f"{text}\n" for text in INPUTS))
    import_commands(
        CommandList(directory / "inputs", start_directories=(HOME,)),
        directory / "dataset",
        scoring=Scoring(budget=1, noise_runs=1),
        executor=SerialExecutor(),
    )
    return directory / "dataset"


@pytest.fixture(scope="module")
def filling(dataset: Path) -> Memory:
    return memory(Setting(str(dataset), "debian-12", HOME))


def asked(predictor: Memory, text: str) -> Answer:
    return predictor.answer(text, State(cwd=HOME))


def test_the_same_input_has_the_same_answer(filling: Memory) -> None:
    answer = asked(filling, "cat nowhere.txt")
    assert answer.confidence == 1
    assert answer.behavior.output == b"cat: nowhere.txt: No such file or directory\n"
    assert answer.behavior.exit_code == 1
    assert asked(filling, "cat   nowhere.txt").confidence == 1


def test_words_of_the_same_class_are_filled_in(filling: Memory, dataset: Path) -> None:
    answer = asked(filling, "cat gone.txt")
    assert answer.behavior.output == b"cat: gone.txt: No such file or directory\n"
    assert 0.5 < answer.confidence < 1
    touched = asked(filling, "touch tmp/other.md").behavior.patch
    assert isinstance(touched, ContextPatch)
    assert [operation[:2] for operation in touched.operations] == [("a", "/fs/tmp~1other.md")]
    plain = plain_memory(Setting(str(dataset), "debian-12", HOME))
    assert asked(plain, "cat gone.txt").behavior.output.startswith(b"cat: nowhere.txt")
    assert asked(plain, "cat nowhere.txt") == asked(filling, "cat nowhere.txt")


def test_another_option_is_further_away_than_another_word(filling: Memory) -> None:
    near = asked(filling, "head -n 2 documents/poem.txt")
    far = asked(filling, "head -c 2 -q documents/names.txt")
    assert near.confidence > far.confidence > 0
    assert "documents/names.txt" in near.source


def test_what_is_like_nothing_is_declined(filling: Memory) -> None:
    with pytest.raises(Abstained):
        asked(filling, "wc -l documents/notes.txt")
    with pytest.raises(Abstained):
        asked(filling, "cat nowhere.txt | wc -l")


def test_a_memory_needs_a_dataset(tmp_path: Path) -> None:
    with pytest.raises(PredictorError):
        memory(Setting("", "debian-12", HOME))
    with pytest.raises(UnknownDatasetError):
        memory(Setting(str(tmp_path), "debian-12", HOME))
