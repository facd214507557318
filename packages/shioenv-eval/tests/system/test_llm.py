"""A prompted model behind a test server of the protocol, bad answers included."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shioenv.dataset.external import CommandList, import_commands
from shioenv.domain.predictor import Setting
from shioenv.domain.runner import State
from shioenv.errors import AnswerError, PredictorError
from shioenv.execution.local import SerialExecutor
from shioenv.irreducibility.scoring import UNSCORED
from shioenv_eval.evaluate import evaluate
from shioenv_eval.metrics import Status
from shioenv_eval.predictor_pool import ask_predictor
from shioenv_eval.predictors.llm import PromptedModel, PromptOptions
from shioenv_eval.suite import write_suite
from support.chat_endpoint import Endpoint
from support.evaluation_fakes import case, did, suite_of
from support.needs import needs

pytestmark = pytest.mark.usefixtures("system")
HOME = "/home/ubuntu"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint(
        {
            "cd /home/ubuntu; rm x": '<OUT></OUT> <DIFF>[["r","/fs/x"]]</DIFF>',
            "cd /tmp; pwd": "<OUT> /tmp </OUT> <DIFF> [] </DIFF>",
            "cd /home/ubuntu; bad": "<OUT>half</OUT> <DIFF>oops</DIFF>",
        }
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def made(endpoint: Endpoint, replay: Path) -> PromptedModel:
    return PromptedModel(Setting(f"m,url={endpoint.url},replay={replay}", "debian-12", HOME))


def test_the_prompt_is_the_papers_over_the_real_context(endpoint: Endpoint, tmp_path: Path) -> None:
    model = made(endpoint, tmp_path / "replies")
    state = State(cwd="/tmp", history=("echo one > fresh", "export COLOUR=red"))
    assert model.run("pwd", state).output == b"/tmp\n"
    (asked,) = endpoint.asked
    assert (asked["temperature"], asked["model"]) == (0, "m")
    system, user = asked["messages"]
    assert user == {"role": "user", "content": "cd /tmp; pwd"}
    assert system["content"].startswith("You are emulating a Linux command-line interface")
    assert "'hostname': 'ubuntu'" in system["content"]
    assert "'fresh': {'perms': '-rw-r--r--'" in system["content"]
    assert "'COLOUR': 'red'" in system["content"]
    assert "Always respond in the exact format:\n<OUT> OUTPUT_TEXT </OUT>" in system["content"]
    model.close()


@needs("shioenv-model")
def test_the_nearest_executed_inputs_are_shown_before_the_question(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    inputs = tmp_path / "inputs"
    inputs.write_text("rm nowhere\nrm README.md\necho hello\nmkdir made\n")
    import_commands(
        CommandList(inputs, start_directories=(HOME,)),
        tmp_path / "dataset",
        scoring=UNSCORED,
        executor=SerialExecutor(),
    )
    asked_for = f"m,url={endpoint.url},replay={tmp_path / 'replies'},prompt=nearest"
    model = PromptedModel(Setting(f"{asked_for},memory={tmp_path / 'dataset'}", "debian-12", HOME))
    assert model.run("rm x").patch.operations == (("r", "/fs/x"),)
    system, *shown, question = endpoint.asked[0]["messages"]
    assert "add <EXIT>N</EXIT>" in system["content"]
    assert question == {"role": "user", "content": "cd /home/ubuntu; rm x"}
    said = {
        user["content"]: reply["content"]
        for user, reply in zip(shown[::2], shown[1::2], strict=True)
    }
    assert said == {
        "cd /home/ubuntu; rm README.md": '<OUT></OUT> <DIFF>[["r","/fs/README.md"]]</DIFF> '
        "<EXIT>0</EXIT>",
        "cd /home/ubuntu; rm nowhere": "<OUT>rm: cannot remove 'nowhere': No such file or "
        "directory\n</OUT> <DIFF>[]</DIFF> <EXIT>1</EXIT>",
    }
    assert {each["role"] for each in shown[::2]} == {"user"}
    assert {each["role"] for each in shown[1::2]} == {"assistant"}
    model.close()


def test_replies_are_kept_and_repeated_without_the_endpoint(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    model = made(endpoint, tmp_path / "replies")
    endpoint.refusals = 1
    first = model.run("rm x")
    assert first.patch.operations == (("r", "/fs/x"),)
    assert len(endpoint.asked) == 2, "it was asked again after a refusal"
    assert model.tokens == (100, 7)
    model.close()
    again = made(endpoint, tmp_path / "replies")
    assert again.run("rm x") == first
    assert again.tokens == (100, 7)
    assert len(endpoint.asked) == 2
    again.close()


def test_what_replies_cost_is_told(endpoint: Endpoint, tmp_path: Path) -> None:
    cases = [case(did("", ("r", "/fs/x")), text="rm x"), case(did(), text="bad")]
    write_suite(suite_of(*cases), tmp_path / "suite")
    name = f"llm:m,url={endpoint.url},replay={tmp_path / 'replies'},price=2/10.5"
    for _ in range(2):  # the second time from the file
        done = evaluate(tmp_path / "suite", [name, "trivial"], workers=1)
        facts = done.document["predictors"][name]
        assert facts["tokens"] == {"prompt": 200, "completion": 14}
        assert facts["cost"] == pytest.approx((200 * 2 + 14 * 10.5) / 1e6)
        assert (facts["all"]["em"][0], facts["all"]["invalid"][0]) == (0.5, 0.5)
        assert "tokens" not in done.document["predictors"]["trivial"]
    assert len(endpoint.asked) == 2
    unpriced = name.removesuffix(",price=2/10.5")
    done = evaluate(tmp_path / "suite", [unpriced], tmp_path / "kept", workers=1)
    assert done.document["predictors"][unpriced]["cost"] is None
    with pytest.raises(PredictorError, match=r"such as 0\.15/0\.60"):
        PromptOptions.of("m,price=cheap")


def test_bad_replies_are_wrong_answers_that_are_counted(endpoint: Endpoint, tmp_path: Path) -> None:
    model = made(endpoint, tmp_path / "replies")
    with pytest.raises(AnswerError):
        model.run("bad")
    said = ask_predictor(model, "bad", State(cwd=HOME))
    assert said.status is Status.INVALID
    assert said.behavior is not None
    assert said.behavior.output == b"half\n"
    assert said.tokens == (100, 7)
    assert ask_predictor(model, "unheard of", State(cwd=HOME)).status is Status.INVALID
    model.close()


def test_a_reply_that_does_not_end_is_no_answer(
    endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shioenv.endpoint.RETRIES", 0)
    endpoint.replies["cd /home/ubuntu; long"] = "x" * (9 << 20)
    model = made(endpoint, tmp_path / "replies")
    said = ask_predictor(model, "long", State(cwd=HOME))
    assert (said.status, said.why) == (Status.INVALID, "the reply exceeds 8 MiB")
    model.close()


def test_an_endpoint_that_does_not_reply_is_no_wrong_answer(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    cases = [case(did("", ("r", "/fs/x")), text="rm x"), case(did(), text="bad")]
    write_suite(suite_of(*cases), tmp_path / "suite")
    name = f"llm:m,url={endpoint.url},replay={tmp_path / 'replies'}"
    endpoint.refusals = 99
    done = evaluate(tmp_path / "suite", [name], tmp_path / "kept", workers=1)
    assert list(done.unable) == [name]
    assert "does not reply" in done.unable[name]
    endpoint.refusals = 0
    done = evaluate(tmp_path / "suite", [name], tmp_path / "kept", workers=1)
    assert not done.unable
    assert done.document["predictors"][name]["all"]["em"][0] == 0.5


def test_without_an_endpoint_nothing_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    write_suite(suite_of(case(did(), text="true")), tmp_path / "suite")
    name = f"llm:m,replay={tmp_path / 'replies'}"
    done = evaluate(tmp_path / "suite", [name], workers=1)
    assert "needs an endpoint" in done.unable[name]
