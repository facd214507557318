"""The bundled model's answers for filters in a pipeline match the machine."""

from __future__ import annotations

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_model.files import load_model
from shioenv_model.model import Model

LIKE_FILES = r"""
ls | grep data
ls -F | grep /
ls -tp | grep -v / | head -3
ls | grep -c scripts
cat README.md | grep -v data
cat README.md | grep -n README.md
ls | tr a data
ls | sed data
ls | awk data
ls | grep -e data
ls | grep -f data
ls | sort documents
grep logs < README.md
""".strip().split("\n")
REFUSED = r"""
ls | wc -1
ls | wc --foo
ls | grep -E
ls | grep
ls | cut -d.
cat README.md | cut -f2 -d
ls | cut -d ab -f1
ls | head -n x
ls | sort --foo
ls | uniq -q
ls | tr -d
ls | fold -w
ls | xargs -n x
""".strip().split("\n")


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model()


@pytest.mark.parametrize("text", LIKE_FILES)
def test_a_pattern_that_is_called_like_a_file(
    text: str, model: Model, observer: SandboxRunner
) -> None:
    said, right = model.run(text), observer.run(text)
    assert (said.output, said.exit_code) == (right.output, right.exit_code)


@pytest.mark.parametrize("text", REFUSED)
def test_words_that_a_filter_refuses(text: str, model: Model, observer: SandboxRunner) -> None:
    said, right = model.run(text), observer.run(text)
    assert (said.output, said.exit_code) == (right.output, right.exit_code)
