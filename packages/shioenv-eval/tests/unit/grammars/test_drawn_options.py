"""Options of the grammars that inputs cover."""

from __future__ import annotations

import pytest

from shioenv.domain.inputs import Input
from shioenv.domain.record import Record, ScoredSegment
from shioenv.grammar.load import read_grammar
from shioenv_eval.grammars.drawn_options import OptionCoverage

HEADER = "command {0}\nmanual {0}(1), T 1\npackage t\nvolatile no\n"
GRAMMARS = {
    name: read_grammar(HEADER.format(name) + body, f"{name}.grammar").grammar
    for name, body in {
        "tool": "start tool <option>*\n<n> = 5\noptions\n  -a, --all\n  -n, --lines=<n>\n  -V\n"
        "  --version\n",
        "other": "start other <option>*\noptions\n  -z\n  -Z\nrefused -Z: needs a label\n",
    }.items()
}


def record(args: list[str], stderr: str = "", ran: tuple[bool, ...] = ()) -> Record:
    return Record(
        session_id=0,
        input="",
        input_args=args,
        exit_code=0,
        output=stderr,
        context_patch="[]",
        irreducibility=None,
        stderr=stderr,
        segments=[ScoredSegment(command="tool", n_arguments=1, executed=each) for each in ran],
    )


@pytest.mark.parametrize(
    ("args", "seen"),
    [
        (["tool", "--all"], {"-a"}),
        (["tool", "-a<ns>", "<ns>V"], {"-a", "-V"}),
        (["tool", "-n<ns>", "<ns>5"], {"-n"}),
        (["tool", "-n5"], {"-n"}),
        (["tool", "--lines=7", "-x"], {"-n"}),
        (["tool", "--version", "|", "other", "-z"], {"--version", "-z"}),
        (["nowhere", "-a"], set()),
    ],
)
def test_an_option_counts_by_any_of_its_names(args: list[str], seen: set[str]) -> None:
    found = OptionCoverage(GRAMMARS)
    found.add_drawn(Input.from_marked(args))
    assert {option for _, option in found.seen} == seen


@pytest.mark.parametrize(
    ("stderr", "counts"),
    [
        ("", True),
        ("tool: no such file\n", True),
        ("tool: unrecognized option '--all'\nTry 'tool --help' for more information.\n", False),
        ("usage: tool [-a]\n", False),
    ],
)
def test_an_option_in_a_usage_error_does_not_count(stderr: str, counts: bool) -> None:
    found = OptionCoverage(GRAMMARS)
    found.add_record(record(["tool", "-a", "-V"], stderr))
    assert (("tool", "-a") in found.seen) is counts
    assert ("tool", "-V") in found.seen, "it is about the program itself"


def test_a_command_that_was_not_executed_does_not_count() -> None:
    found = OptionCoverage(GRAMMARS)
    found.add_record(record(["tool", "-a", "||", "other", "-z"], ran=(True, False)))
    assert {option for _, option in found.seen} == {"-a"}


def test_the_summary_names_what_is_missing() -> None:
    found = OptionCoverage(GRAMMARS)
    for number in range(4):
        found.add_drawn(Input.from_marked(["tool", ("-a", "-V")[number % 2]]))
    assert found.to_json() == {
        "inputs": 4,
        "options": 5,
        "seen": 2,
        "curve": [[1, 1], [2, 2], [4, 2], [4, 2]],
        "missing": {"other": ["-z"], "tool": ["--version", "-n"]},
        "refused": {"other": {"-Z": "needs a label"}},
    }
    first, *_, missing, refused = found.lines()
    assert first == "options   2 of 5 (40.0%) in 4 inputs"
    assert missing == "missing   tool 2: --version -n"
    assert refused == "refused   other -Z: needs a label"
