"""Switches for answer sources: each removes one source's answers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.domain.predictor import Setting
from shioenv.errors import PredictorError, UsageError
from shioenv_model.files import load_model, write_card
from shioenv_model.memory.sources import NAMES, Sources, without
from shioenv_model.model import Model
from shioenv_model.predictors.default import default
from shioenv_model.rules.registry import RULES
from shioenv_model.single_commands import EXACT, GUESSED
from support.small_world import HOME, small_memory

RULED = "basename sub/inner.txt"
"""A command without a record, whose output a rule computes."""
LOOKED_UP = "cat a.txt"
"""A command with a record."""
SIMILAR = "cat nothere"
"""A command like one with a record, without a function that explains it."""
COMPUTED = "head -n 1 b.txt"
"""A command like one with a record, with a function that explains it."""
BY_BASH = "cd sub; pwd"
"""Lines that Bash's own rules answer."""

NOT_FOUND = "no directory of PATH holds it"
"""Source of an answer for an unknown command: the machine has only `cat`."""
FOUND = "found from"
"""Beginning of an answer's source for a function."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("memory")
    small_memory(made)
    write_card(made, {"name": "small", "system": "debian-12"})
    return made


def answered(model: Model, text: str) -> tuple[str, bytes, str]:
    """Return the answering component for an input of one command, the output, and its source."""
    answer = model.answer(text)
    return model.steps[-1].asked[-1], answer.behavior.output, answer.source


def test_everything_answers_where_nothing_is_left_out(directory: Path) -> None:
    model = load_model(directory)
    assert answered(model, RULED) == ("program", b"inner.txt\n", "a program, by rule")
    assert answered(model, LOOKED_UP) == (EXACT, b"one\ntw", "memory: the same input")
    assert answered(model, SIMILAR)[2].startswith("memory: cat gone")
    who, output, source = answered(model, COMPUTED)
    assert (who, output) == ("memory", b"x\n")
    assert FOUND in source
    assert "without" not in model.version


def test_without_rules_no_rule_is_asked(directory: Path) -> None:
    whole, bare = load_model(directory), load_model(directory, without=["rules"])
    assert ", without rules" in bare.version
    bare.answer(RULED)
    (step,) = bare.steps
    assert not set(step.asked) & RULES.keys()
    assert step.asked[-1] == "memory"
    assert step.answer.source == NOT_FOUND
    for text in (LOOKED_UP, SIMILAR, COMPUTED, BY_BASH):
        assert bare.answer(text) == whole.answer(text)


def test_without_functions_no_function_is_looked_for(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, bare = load_model(directory), load_model(directory, without=["functions"])
    assert ", without functions" in bare.version
    monkeypatch.delattr(type(bare.memory), "_inducer")
    assert FOUND not in bare.answer(COMPUTED).source
    monkeypatch.undo()
    for text in (RULED, LOOKED_UP, SIMILAR, BY_BASH):
        assert bare.answer(text).behavior == whole.answer(text).behavior
        assert bare.answer(text).source == whole.answer(text).source


def test_without_records_the_same_input_is_not_looked_up(directory: Path) -> None:
    whole, bare = load_model(directory), load_model(directory, without=["records"])
    assert ", without records" in bare.version
    who, output, source = answered(bare, LOOKED_UP)
    assert who == "memory"
    assert FOUND in source
    assert output == b"one\ntw"
    assert bare.answer(SIMILAR).source.startswith(GUESSED)
    assert FOUND in bare.answer(COMPUTED).source
    for text in (RULED, BY_BASH):
        assert bare.answer(text) == whole.answer(text)


def test_without_all_of_it_bash_alone_answers(directory: Path) -> None:
    model = load_model(directory, without=NAMES)
    assert ", without rules and functions and records" in model.version
    assert model.answer(BY_BASH).behavior.output == f"{HOME}/sub\n".encode()
    assert {model.answer(text).source for text in (RULED, COMPUTED)} == {NOT_FOUND}
    for text in (LOOKED_UP, SIMILAR):
        answer = model.answer(text)
        assert (answer.source.partition(":")[0], answer.confidence) == (GUESSED, 0.0)


def test_an_input_that_is_not_put_together_keeps_to_the_sources(directory: Path) -> None:
    text = "coproc cat a.txt"
    model = load_model(directory, without=["functions", "records"])
    assert model.answer(text).source.startswith(GUESSED)
    assert not [step for step in model.steps if step.nearest]


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        without(["rulez"])
    assert refused.value.hint == "did you mean rules?"
    assert without([]) == Sources()


def test_the_predictor_takes_sources(directory: Path) -> None:
    text = f"{directory},without=rules,without=records"
    made = default(Setting(text, "debian-12", HOME))
    assert made.sources == Sources(rules=False, records=False)
    with pytest.raises(PredictorError, match="unknown source of answers"):
        default(Setting(f"{directory},without=all", "debian-12", HOME))
