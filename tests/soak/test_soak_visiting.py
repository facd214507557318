"""The soak of visitors detects missing log entries, and names the violated conditions."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SOAK = Path(__file__).parents[2] / "soak"
ONE, TWO = "1" * 16, "2" * 16


@pytest.fixture
def visiting() -> Iterator[Any]:
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(SOAK))
        yield importlib.import_module("visiting")
        sys.modules.pop("visiting")


def line(token: str, count: int) -> str:
    return f"echo {token}-{count} >> /tmp/mine"


def events(session: str, token: str, lines: int) -> list[dict[str, str]]:
    """Return the log's events of a session that ended normally."""
    found = [{"eventid": "cowrie.session.connect"}]
    for count in range(1, lines + 1):
        for name in ("cowrie.command.input", "shioenv.command"):
            found.append({"eventid": name, "input": line(token, count)})
    found.append({"eventid": "cowrie.session.closed"})
    return [{"session": session, **event} for event in found]


def found(
    visiting: Any, place: Path, log: list[dict[str, str]], *, end: str = "", **changed: Any
) -> list[str]:
    """Return the faults of a log in which two visitors had three and two lines answered."""
    answered = [line(ONE, count) for count in (1, 2, 3)] + [line(TWO, count) for count in (1, 2)]
    tally = visiting.Tally(answered=answered, ends=Counter(left=2))
    for name, value in changed.items():
        setattr(tally, name, value)
    place.write_text("".join(f"{json.dumps(event)}\n" for event in log) + end)
    return list(visiting.faults(place, tally, 0, [], 0))


def test_a_log_that_has_everything_has_no_fault(visiting: Any, tmp_path: Path) -> None:
    log = events("a", ONE, 3) + events("b", TWO, 2)
    assert found(visiting, tmp_path / "log", log) == []
    together = [event for event in log if event["eventid"] != "shioenv.command"]
    told = "\n".join(line(ONE, count) for count in (1, 2, 3))
    together.append({"eventid": "shioenv.command", "session": "a", "input": told})
    together.append({"eventid": "shioenv.command", "session": "b", "input": line(TWO, 1)})
    assert found(visiting, tmp_path / "log", together) == []  # a last line may lack its report


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        (0, "1 sessions began, 2 ended"),
        (1, f"not in the log: {line(ONE, 1)}"),
        (2, f"not told: {line(ONE, 1)}"),
        (7, "2 sessions began, 1 ended"),
    ],
)
def test_a_lost_line_is_found(visiting: Any, tmp_path: Path, place: int, fault: str) -> None:
    log = events("a", ONE, 3) + events("b", TWO, 2)
    del log[place]
    assert fault in found(visiting, tmp_path / "log", log)


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        (1, f"2 times in the log: {line(ONE, 1)}"),
        (2, f"told 2 times: {line(ONE, 1)}"),
        (7, "2 sessions began, 3 ended"),
    ],
)
def test_a_doubled_line_is_found(visiting: Any, tmp_path: Path, place: int, fault: str) -> None:
    log = events("a", ONE, 3) + events("b", TWO, 2)
    log.insert(place, log[place])
    assert fault in found(visiting, tmp_path / "log", log)


def test_mixed_sessions_cut_lines_strangers_and_broken_sessions_are_found(
    visiting: Any, tmp_path: Path
) -> None:
    log = events("a", ONE, 3) + events("a", TWO, 2)
    assert "session a has lines of several" in found(visiting, tmp_path / "log", log)
    log = events("a", ONE, 3) + events("b", TWO, 2)
    assert found(visiting, tmp_path / "log", log, end='{"eventid"')[0].startswith("line 15 of the")
    (stranger,) = found(visiting, tmp_path / "log", log, strangers=["x: 'y'"])
    assert stranger == "a stranger's sentinel at x: 'y'"
    (broken,) = found(visiting, tmp_path / "log", log, ends=Counter({"the end": 1, "left": 1}))
    assert broken == "1 sessions broke, and 0 processes were killed"
