"""The report's counts, and the values that meet their expectation."""

from dataclasses import replace
from datetime import date

from shioenv_eval.report.grammar_report import (
    EndCounts,
    Endings,
    GrammarReport,
    classify_end,
    grammars_page,
)


def trial(
    grammar: str, exit_code: int, output: str = "", *, timed_out: bool = False
) -> tuple[str, EndCounts]:
    return grammar, classify_end(exit_code, output, timed_out=timed_out)


DONE = Endings.of(
    [
        trial("ls", 0),
        trial("ls", 2, "ls: cannot access 'x': No such file or directory"),
        trial("nl", 1, "nl: invalid option -- 'k'"),
        trial("nl", 124, timed_out=True),
        *[trial("cat", 0)] * 96,
    ]
)
REPORT = GrammarReport(
    date=date(2025, 10, 16), system="s", system_digest="d", seed=7, commands=86,
    nonterminals=804, productions=6223, documented=9, missing=0, unknown=0, excused=1,
    gcs=replace(DONE, by_command={"ls": EndCounts(100, 1, 99, 0)}), ucs=DONE, speed=5000.0,
    parsed_back=10, parsed_otherwise=0,
)  # fmt: skip


def test_inputs_are_counted_by_how_they_ended() -> None:
    assert DONE.together == EndCounts(inputs=100, misuse=1, exit_0=97, timed_out=1)
    assert DONE.by_command["nl"] == EndCounts(inputs=2, misuse=1, exit_0=0, timed_out=1)
    assert [command for command, _ in DONE.worst(2)] == ["nl", "cat"]


def test_each_number_is_held_against_what_it_must_be() -> None:
    assert REPORT.reached
    bad = Endings(EndCounts(100, 4, 74, 0), {"ls": EndCounts(100, 11, 80, 0)})
    for changes, number in (
        ({"commands": 85}, 1), ({"missing": 1}, 1), ({"speed": 4999.0}, 1),
        ({"parsed_otherwise": 1}, 1), ({"gcs": bad}, 3),
    ):  # fmt: skip
        changed = replace(REPORT, **changes)
        assert sum(not reached for *_, reached in changed.goals()) == number


def test_the_page_shows_every_number() -> None:
    text = grammars_page(REPORT)
    assert "seed 7" in text
    assert "| GCS inputs that exit 0 | at least 75% | 97.0% | yes |" in text
    assert "| `ls` | paper | 100 | 1.0% | 99.0% | 2 | 0.0% | 50.0% |" in text
    assert REPORT.to_json()["ucs"]["by_command"]["nl"]["misuse_share"] == 0.5
