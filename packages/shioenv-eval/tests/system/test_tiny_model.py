"""A real model, small enough to be trained here, evaluated behind OpenAI's protocol."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shioenv_eval.evaluate import evaluate
from shioenv_eval.suite import write_suite
from support.evaluation_fakes import case, did, suite_of
from support.needs import needs
from support.paths import ROOT

pytestmark = [pytest.mark.usefixtures("system"), needs("torch", "transformers")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from support.tiny_model import make

    directory = tmp_path_factory.mktemp("checkpoint")
    make(directory)
    words = [sys.executable, str(ROOT / "tests/support/tiny_model.py"), str(directory)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.kill()


def test_a_checkpoint_is_judged_and_its_tokens_are_counted(url: str, tmp_path: Path) -> None:
    from support.tiny_model import REPLY

    cases = [case(did("/home/ubuntu\n"), text="pwd"), case(did("2\n"), text="ls | wc -l")]
    write_suite(suite_of(*cases), tmp_path / "suite")
    name = f"llm:tiny,url={url},replay={tmp_path / 'replies'},price=1/2"
    done = evaluate(tmp_path / "suite", [name], workers=1)
    facts = done.document["predictors"][name]
    assert [one.behavior for one in done.predictors[0].said] == [did("/home/ubuntu\n")] * 2
    assert (facts["all"]["em"][0], facts["all"]["invalid"][0]) == (0.5, 0)
    assert facts["version"].startswith("tiny, prompt paper ")
    assert facts["tokens"]["completion"] == 2 * (len(REPLY) + 1), "bytes, and the end of the text"
    assert facts["tokens"]["prompt"] > 2 * 1000, "the whole prompt"
    asked, said = facts["tokens"].values()
    assert facts["cost"] == pytest.approx((asked + 2 * said) / 1e6)
