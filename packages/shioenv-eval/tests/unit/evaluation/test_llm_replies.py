"""A prompted model's replies, parsed by the paper's format, and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.endpoint import ReplyFile
from shioenv.errors import AnswerError, PredictorError
from shioenv_eval.predictors.llm import PromptOptions, parse_reply


@pytest.mark.parametrize(
    ("reply", "output"),
    [
        ("<OUT> hello </OUT> <DIFF> [] </DIFF>", b"hello\n"),
        ("<OUT>hello\n</OUT>\n<DIFF>[]</DIFF>", b"hello\n"),
        ("<OUT>\na\nb\n</OUT><DIFF>[]</DIFF>", b"a\nb\n"),
        ("<OUT>  two blanks\n</OUT><DIFF>[]</DIFF>", b" two blanks\n"),
        ("<OUT></OUT><DIFF></DIFF>", b""),
        ("Sure!\n<OUT>x</OUT> <DIFF>[]</DIFF> done", b"x\n"),
        ("<OUT>echo </OUT> y</OUT><DIFF>[]</DIFF>", b"echo </OUT> y\n"),
        ("<OUT>x</OUT><DIFF>[]", b"x\n"),
    ],
)
def test_the_output_stands_between_its_tags(reply: str, output: bytes) -> None:
    behavior = parse_reply(reply)
    assert (behavior.output, behavior.exit_code, behavior.patch.operations) == (output, 0, ())


def test_patch_and_exit_code_are_read() -> None:
    behavior = parse_reply('<OUT></OUT> <DIFF>[["r", "/fs/a"]]</DIFF> <EXIT>3</EXIT>')
    assert behavior.patch.operations == (("r", "/fs/a"),)
    assert behavior.exit_code == 3


@pytest.mark.parametrize(
    ("reply", "received"),
    [
        ("", b""),
        ("no tags at all", b""),
        ("<OUT>x", b""),
        ("<OUT>x</OUT>", b"x\n"),
        ("<OUT>x</OUT><DIFF>nothing</DIFF>", b"x\n"),
        ('<OUT>x</OUT><DIFF>[["z", "/fs/a"]]</DIFF>', b"x\n"),
        ('<OUT>x</OUT><DIFF>{"a": 1}</DIFF>', b"x\n"),
    ],
)
def test_what_is_no_answer_keeps_what_was_received(reply: str, received: bytes) -> None:
    with pytest.raises(AnswerError) as caught:
        parse_reply(reply)
    assert caught.value.received.output == received


@pytest.mark.parametrize(
    "text", ["", ",prompt=paper", "m,prompt=other", "m,prompt=nearest", "m,memory=d", "m,heat=1"]
)
def test_options_that_cannot_be_meant_are_refused(text: str) -> None:
    with pytest.raises(PredictorError):
        PromptOptions.of(text)


def test_options_are_read() -> None:
    options = PromptOptions.of("gpt-x,replay=a.jsonl,url=http://localhost:1/v1")
    assert (options.model, options.prompt, options.replay) == ("gpt-x", "paper", "a.jsonl")
    assert PromptOptions.of("m,prompt=nearest,memory=d").memory == "d"


@pytest.mark.parametrize("price", ["1.2.3/4", "1/4.", "./1", "1", "1/2/3"])
def test_a_price_is_two_numbers(price: str) -> None:
    with pytest.raises(PredictorError, match="expected IN/OUT"):
        PromptOptions.of(f"m,price={price}")
    assert PromptOptions.of("m,price=.15/1.0").cost((1_000_000, 2_000_000)) == 2.15


def test_a_reply_is_kept_behind_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    first, second = ({"messages": [{"content": text}]} for text in ("a", "b"))
    ReplyFile(path).keep(first, {"said": 1})
    path.write_bytes(path.read_bytes() + b'[1]\n{"request": "0')
    ReplyFile(path).keep(second, {"said": 2})
    kept = ReplyFile(path)
    assert (kept.get(first), kept.get(second)) == ({"said": 1}, {"said": 2})
