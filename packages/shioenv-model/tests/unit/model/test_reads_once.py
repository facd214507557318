"""An answer parses each text once, and looks up each input once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shioenv.bash.read import read
from shioenv_model.composition import reading
from shioenv_model.memory.index import Index
from shioenv_model.model import Model
from support.small_world import small_memory


def counted(function: Callable[..., Any], calls: Counter[Any]) -> Callable[..., Any]:
    def count(*arguments: Any, **named: Any) -> Any:
        calls[arguments[-1]] += 1
        return function(*arguments, **named)

    return count


@pytest.mark.parametrize(
    "text",
    [
        "ls -l",
        "cat gone other",
        "head -n 1 a.txt | wc -l > new.txt",
        "a=1",
        "for x in 1 2; do echo $x; done",
        "cat < a.txt; (cd sub && ls)",
    ],
)
def test_an_answer_reads_and_looks_up_once(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(small_memory(tmp_path))
    parses: Counter[str] = Counter()
    looks: Counter[str] = Counter()
    reading._source.cache_clear()
    monkeypatch.setattr(reading, "read", counted(read, parses))
    monkeypatch.setattr("shioenv.bash.normal.read", counted(read, parses))
    monkeypatch.setattr("shioenv.grammar.parse.read", counted(read, parses))
    monkeypatch.setattr(Index, "exact", counted(Index.exact, looks))
    model.answer(text)
    assert max(parses.values(), default=0) <= 1, parses
    assert looks[text] == 1
    assert max(looks.values()) == 1, looks
