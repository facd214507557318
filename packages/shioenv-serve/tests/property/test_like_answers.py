"""An answer is recognised again after Cowrie has modified it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shioenv_serve.conversations import likeness
from support.cowrie_history import shown

PIECES = st.sampled_from(["`", "```", "sh", "\n", " ", "\t", "a", "é", "\x1b[0m", "\0", "\ufffd"])


@given(st.lists(PIECES, max_size=20).map("".join))
def test_what_cowrie_sends_back_is_like_the_answer(answer: str) -> None:
    assert likeness(shown(answer)) == likeness(answer)


@given(st.lists(PIECES, max_size=8).map("".join), st.lists(PIECES, max_size=8).map("".join))
def test_answers_that_cowrie_shows_alike_are_alike_and_others_are_not(one: str, other: str) -> None:
    assert (likeness(one) == likeness(other)) == (shown(one) == shown(other))
