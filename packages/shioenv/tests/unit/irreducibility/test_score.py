import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.errors import UsageError
from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.irreducibility.score import MOST_ARGUMENTS, Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring


class Shell:
    """Answers with the value of `output` for the line, and counts its questions."""

    def __init__(self, output: Callable[[str], str]) -> None:
        self.output = output
        self.asked: Counter[str] = Counter()

    def __call__(self, text: str) -> Behavior:
        self.asked[text] += 1
        return Behavior(0, self.output(text).encode())


def words(*wanted: str) -> Shell:
    """Return a shell that prints the wanted words that it finds, each far from the others."""
    return Shell(lambda text: "".join(word * 50 for word in wanted if word in text.split()))


def score(
    line: str, shell: Shell, budget: int = 64, scoring: Scoring | None = None, **options: object
) -> Score:
    shell_input = Input.from_marked(line.split())
    return estimate_irreducibility(
        shell_input,
        shell,
        scoring or Scoring(budget=budget),
        rng=random.Random(3),
        **options,  # type: ignore[arg-type]
    )


def test_no_argument_has_no_score_but_a_behavior() -> None:
    shell = Shell(lambda text: text)
    found = score("pwd", shell)
    assert found.irreducibility is found.irreducibility_strict is found.standard_error is None
    assert found.exact
    assert (found.n_arguments, found.n_executions) == (0, 3)
    assert found.behavior.output == b"pwd"


@pytest.mark.parametrize(("wanted", "expected"), [(("a",), 1.0), ((), 0.0)])
def test_one_argument_is_held_against_the_command_alone(
    wanted: tuple[str, ...], expected: float
) -> None:
    found = score("ls a", words(*wanted))
    assert found.irreducibility == found.irreducibility_strict == expected
    assert found.exact
    assert found.n_executions == 4
    assert found.segments[0].arguments[0].contribution == expected


@pytest.mark.parametrize("wanted", [(), ("a",), ("a", "b"), ("a", "b", "c")])
def test_the_exact_score_of_three_arguments(wanted: tuple[str, ...]) -> None:
    shell = words(*wanted)
    found = score("ls a b c", shell)
    weight = sum(
        len(kept) * (not set(wanted) <= set(kept)) for kept in ("a", "b", "c", "ab", "ac", "bc")
    )
    assert found.irreducibility == pytest.approx(weight / 9)
    assert found.exact
    assert found.standard_error == 0.0
    assert found.interval == (found.irreducibility, found.irreducibility)
    assert found.n_executions == 3 + 6
    assert "ls" not in shell.asked


def test_it_is_exact_from_the_budget_that_covers_all() -> None:
    assert score("ls a b c", words("a"), scoring=Scoring(budget=7)).exact
    assert not score("ls a b c", words("a"), scoring=Scoring(budget=6)).exact


def test_noise_runs_are_never_cached_and_sub_inputs_run_once() -> None:
    shell = words("a")
    cache: dict[str, Behavior] = {}
    score("ls a a b", shell, cache=cache)
    assert shell.asked.pop("ls a a b") == 3
    assert set(shell.asked.values()) == {1}
    assert set(cache) == {"ls a a b", *shell.asked}


def test_sub_inputs_with_the_same_text_share_an_execution() -> None:
    found = score("ls a a", words("a"))
    assert found.n_executions == 3 + 1


def test_a_cache_changes_nothing_but_what_is_run() -> None:
    cache: dict[str, Behavior] = {}
    first = score("ls a b c", words("a"), cache=cache)
    shell = words("a")
    assert score("ls a b c", shell, cache=cache) == first
    assert set(shell.asked) == {"ls a b c"}


def test_what_a_volatile_input_did_does_not_enter_the_cache() -> None:
    noise = cycle(("x" * 40, "y" * 40, "z" * 40))
    cache: dict[str, Behavior] = {}
    found = score("date a b", Shell(lambda text: next(noise)), cache=cache)
    assert found.volatile
    assert not cache


def test_the_strict_score_comes_from_the_same_executions() -> None:
    listing = "entry\n" * 200
    shell = Shell(lambda text: listing + ("a" if "a" in text.split() else "b"))
    found = score("ls a b", shell)
    assert (found.irreducibility, found.irreducibility_strict) == (0.0, 0.5)
    assert found.n_executions == 5


def test_each_segment_is_scored_on_its_prefix_and_pooled_by_arguments() -> None:
    shell = words("a", "b", "z")
    found = score("ls a b | cat z", shell)
    first, second = found.segments
    assert (first.command, first.irreducibility, first.n_arguments) == ("ls", 1.0, 2)
    assert (second.command, second.irreducibility, second.n_arguments) == ("cat", 1.0, 1)
    assert set(shell.asked) == {"ls a b", "ls a", "ls b", "ls a b | cat z", "ls a b | cat"}
    assert found.n_executions == sum(shell.asked.values()) == 3 + 2 + 3 + 1
    other = score("ls a x | cat y", words("a"))
    assert other.irreducibility == pytest.approx((2 * 0.5 + 1 * 0.0) / 3)


@pytest.mark.parametrize("line", ["ls a | cat b c d e | wc f", "ls a b c | cat d e f g h i j"])
def test_commands_of_which_everything_matters_are_exactly_one_together(line: str) -> None:
    found = score(line, words(*"abcdefghij"))
    assert [segment.irreducibility for segment in found.segments] == [1.0] * len(found.segments)
    assert found.irreducibility == found.irreducibility_strict == 1.0


def test_a_segment_without_arguments_takes_no_part() -> None:
    shell = words("a")
    found = score("ls a | cat", shell)
    assert found.irreducibility == 1.0
    assert found.n_executions == 3 + 3 + 1
    assert [segment.irreducibility for segment in found.segments] == [1.0, None]
    assert found.behavior.output == b"a" * 50


def test_a_session_holds_earlier_rows_constant() -> None:
    rows = [Input.from_marked(["ls", "a"]), Input.from_marked(["cat", "b"])]
    shell = words("a", "b")
    found = estimate_irreducibility(rows, shell, rng=random.Random(0))
    assert found.irreducibility == 1.0
    assert set(shell.asked) == {"ls a", "ls", "ls a\ncat b", "ls a\ncat"}


def test_an_estimate_says_how_sure_it_is() -> None:
    line = "ls " + " ".join("abcdefghij")
    found = score(line, words("a"), scoring=Scoring(budget=32, estimator="paper"))
    assert not found.exact
    assert found.standard_error is not None
    assert found.standard_error > 0
    low, high = found.interval or (0.0, 0.0)
    assert 0 < low < (found.irreducibility or 0) < high < 1
    nothing = score(line, words(), scoring=Scoring(budget=32))
    assert nothing.irreducibility == nothing.standard_error == 0.0
    assert (nothing.interval or (0, 0))[1] > 0.05


def test_arguments_are_explained() -> None:
    a, b, c = score("ls a b c", words("a")).segments[0].arguments
    assert (a.leave_one_out, b.leave_one_out, c.leave_one_out) == (True, False, False)
    assert (a.contribution or 0) > (b.contribution or 0)
    assert a.text == "a"
    assert str(a.channel) == "output"


def test_necessary_is_the_share_of_arguments_without_which_alone_it_does_something_else() -> None:
    found = score("ls a b c d", words("a", "c"))
    assert found.necessary == found.segments[0].necessary == 0.5
    assert score("ls a", words("a")).necessary == 1.0
    assert score("ls a b", words()).necessary == 0.0


def test_what_is_said_twice_is_not_necessary() -> None:
    """`-v --verbose`: either alone can go, both cannot."""
    shell = Shell(lambda text: "much " * 50 if "-v" in text or "--verbose" in text else "")
    found = score("ls -v --verbose x", shell)
    assert found.necessary == 0.0
    # of the six sub-inputs one keeps neither: x alone, of 9 kept in all
    assert found.irreducibility == pytest.approx(1 / 9)


def test_padding_raises_irreducibility_and_lowers_what_is_necessary() -> None:
    plain = score("ip a list dev lo", words("a", "list", "dev", "lo"), budget=4096)
    padded = score("ip -r -j -s a list dev lo -d", words("a", "list", "dev", "lo"), budget=4096)
    assert plain.irreducibility == plain.necessary == 1.0
    assert padded.necessary == 0.5
    assert (padded.irreducibility or 0) > 0.9


def test_commands_count_by_their_arguments() -> None:
    found = score("ls a b c | cat z", words("a", "z"))
    assert [segment.necessary for segment in found.segments] == [pytest.approx(1 / 3), 1.0]
    assert found.necessary == 0.5
    assert score("ls a | pwd", words("a")).necessary == 1.0


def test_where_an_omission_was_not_run_it_is_not_known() -> None:
    line = "ls " + " ".join("abcdefghij")
    scoring = Scoring(budget=8)
    assert score(line, words("a"), scoring=scoring).necessary is None
    assert score(line, words("a"), scoring=scoring, explain=True).necessary == 0.1
    assert score(line, words("a"), scoring=Scoring(budget=32)).necessary == 0.1


def test_explaining_runs_the_missing_ones_without_touching_the_estimate() -> None:
    line = "ls " + " ".join("abcdefghij")
    plain = score(line, words("a"), scoring=Scoring(budget=8))
    explained = score(line, words("a"), explain=True, scoring=Scoring(budget=8))
    assert explained.irreducibility == plain.irreducibility
    assert explained.standard_error == plain.standard_error
    assert explained.n_executions > plain.n_executions
    effects = [argument.leave_one_out for argument in explained.segments[0].arguments]
    assert effects == [True] + [False] * 9


def test_the_sub_inputs_that_mattered_are_listed() -> None:
    mattered = score("ls a b", words("a")).segments[0].mattered
    assert [contrast.text for contrast in mattered] == ["ls b"]


def test_what_behave_raises_passes_through() -> None:
    def broken(text: str) -> Behavior:
        raise OSError(text)

    with pytest.raises(OSError, match="ls a"):
        estimate_irreducibility(Input.from_marked(["ls", "a"]), broken, rng=random.Random(0))


@pytest.mark.parametrize(("rows", "budget", "runs"), [(1, 0, 3), (1, 64, 0), (0, 64, 3)])
def test_nothing_to_score_is_refused(rows: int, budget: int, runs: int) -> None:
    with pytest.raises(UsageError):
        estimate_irreducibility(
            [Input.from_marked(["ls"])] * rows,
            words(),
            rng=random.Random(0),
            scoring=Scoring(budget=budget, noise_runs=runs),
        )


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_a_command_of_too_many_arguments_is_refused_before_anything_runs(estimator: str) -> None:
    def asked(text: str) -> Behavior:
        raise AssertionError(text)

    def scored(n: int, behave: Callable[[str], Behavior]) -> Score:
        shell_input = Input.from_marked(["echo", *map(str, range(n))])
        scoring = Scoring(budget=64, estimator=estimator)
        return estimate_irreducibility(shell_input, behave, scoring, rng=random.Random(0))

    with pytest.raises(UsageError, match="401 arguments cannot be scored"):
        scored(MOST_ARGUMENTS + 1, asked)
    assert 0 <= (scored(MOST_ARGUMENTS, words("7")).irreducibility or 0) <= 1


def test_the_score_is_json_with_the_names_that_are_relied_on() -> None:
    document = json.loads(json.dumps(score("ls a b | cat z", words("a")).to_json(contrasts=True)))
    for name in (
        "irreducibility",
        "irreducibility_strict",
        "necessary",
        "exact",
        "n_args",
        "n_executions",
        "noise_threshold",
        "arguments",
    ):
        assert name in document
    assert [item["argument"] for item in document["arguments"]] == ["a", "b", "z"]
    assert document["segments"][0]["contrasts"]


@pytest.mark.parametrize(
    ("processes", "budget"),
    [(0, 32), (1, 32), (10, 32), (11, 16), (20, 16), (21, 8), (40, 8), (41, 4), (100_000, 4)],
)
def test_an_input_of_many_processes_has_fewer_sub_inputs(processes: int, budget: int) -> None:
    scoring = Scoring(budget=32, process_budget=320)
    within = scoring.within(processes)
    assert within == Scoring(budget=budget, process_budget=320)
    assert within.within(processes) == within
    assert Scoring(budget=32).within(processes) == Scoring(budget=32)
    assert Scoring(budget=3, process_budget=1).within(processes).budget == 3


def test_a_dear_input_has_an_estimate_and_says_how_sure_it_is() -> None:
    line = "find a b c d e f"
    cheap = words("a")

    def dear(text: str) -> Behavior:
        return replace(cheap(text), processes=1000)

    known = score(line, words("a"))
    shell_input = Input.from_marked(line.split())
    scoring = Scoring(budget=64, process_budget=320)
    found = estimate_irreducibility(shell_input, dear, scoring, rng=random.Random(3))
    assert known.exact
    assert not found.exact
    assert found.n_executions <= 3 + 4 < known.n_executions
    assert found.standard_error is not None
    free = estimate_irreducibility(shell_input, dear, Scoring(budget=64), rng=random.Random(3))
    assert replace(free, behavior=known.behavior) == known
