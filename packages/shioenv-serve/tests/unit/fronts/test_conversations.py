"""Conversations derived from requests: the lines, the possible owner, and the cut."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shioenv_serve.conversations import (
    WINDOW,
    ChatRequest,
    Conversation,
    conversation_of,
    likeness,
)


def read(*messages: tuple[str, Any], caller: str = "", **fields: Any) -> Conversation:
    told = [{"role": role, "content": content} for role, content in messages]
    request = msgspec.convert({"model": "m", "messages": told, **fields}, ChatRequest)
    return conversation_of(request, caller)


def test_a_conversation_is_its_lines_and_answers() -> None:
    told = read(
        ("system", "s"), ("user", "cd /"), ("user", "ls"), ("assistant", "a\n"), ("user", "pwd")
    )
    assert (told.line, told.lines) == ("pwd", ("cd /", "ls"))
    assert told.answers == (likeness("a"),)
    assert not told.is_cut
    assert not told.is_alone


def test_content_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "ls "}, {"type": "text", "text": "-la"}]
    assert read(("user", parts)).line == "ls -la"


def test_an_answer_that_was_declined_is_none() -> None:
    assert read(("user", "a"), ("assistant", None), ("user", "b")).answers == ()


@pytest.mark.parametrize(
    "other",
    [
        {"caller": "another"},
        {"user": "somebody"},
        {"system": "another"},
    ],
)
def test_whose_it_is_decides_who_may_go_on(other: dict[str, str]) -> None:
    system = other.pop("system", "s")
    mine = read(("system", "s"), ("user", "ls"))
    assert mine.key == read(("system", "s"), ("user", "pwd")).key
    assert mine.key != read(("system", system), ("user", "ls"), **other).key


def test_a_name_cannot_stand_for_another_field() -> None:
    assert read(("user", "x"), caller="a", user="b").key != read(("user", "x"), caller="ab").key


def test_a_window_may_be_cut() -> None:
    full = [("user", "true")] * WINDOW
    assert read(*full).is_cut
    assert not read(*full[1:]).is_cut
    assert not read(*full, ("user", "true")).is_cut
    assert read(("assistant", "a"), ("user", "true")).is_cut


def test_a_command_of_cowries_stands_behind_its_last_words() -> None:
    system = "A shell. The current working directory is '/'. The command to execute is: echo '. x'"
    told = read(("system", system))
    assert (told.line, told.is_alone) == ("echo '. x'", True)


@pytest.mark.parametrize(
    "messages",
    [
        [("system", "A shell.")],
        [("user", "ls"), ("assistant", "a")],
        [("system", "'. The command to execute is: ls"), ("assistant", "a")],
    ],
)
def test_without_a_line_there_is_nothing_to_answer(messages: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="user"):
        read(*messages)
