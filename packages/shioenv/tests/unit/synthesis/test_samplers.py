"""Samplers: horizon, action sets, policies, traces."""

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from shioenv.errors import TraceError, UnknownSamplerError, UsageError
from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.symbols import Grammar, Nonterminal
from shioenv.synthesis.policy import (
    NAMED,
    LengthPolicy,
    UniformPolicy,
    WeightedPolicy,
    policy_label,
    settings_named,
)
from shioenv.synthesis.samplers import SAMPLERS, Sampler, permitted_by
from support.paths import ROOT

NAMES = ["cat", "df", "echo", "ls"]


def small(body: str) -> Grammar:
    header = "command x\nmanual x(1), T 1\npackage t\nvolatile no\n"
    return bind(read_grammar(header + body, "x.grammar").grammar, stand_in_catalogue())


@pytest.fixture(scope="module")
def grammars() -> tuple[Grammar, ...]:
    return tuple(bind(grammar, stand_in_catalogue()) for grammar in load_grammars(NAMES))


def test_ucs_opens_the_option_slots_to_every_command_and_nothing_else(
    grammars: tuple[Grammar, ...],
) -> None:
    permitted = permitted_by("ucs", grammars)
    option, operand = Nonterminal("df:option"), Nonterminal("df:operand")
    heads = {production.head.name for production in permitted[option]}
    assert {"df:option", "ls:option", "cat:option", "echo:option"} <= heads
    assert {production.head for production in permitted[operand]} == {operand}


def test_ucs_universal_permits_every_production_everywhere(
    grammars: tuple[Grammar, ...],
) -> None:
    permitted = permitted_by("ucs-universal", grammars)
    total = sum(len(bodies) for bodies in permitted_by("gcs", grammars).values())
    assert {len(productions) for productions in permitted.values()} == {total}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("horizon", [1, 3, 12])
def test_no_command_has_more_arguments_than_the_horizon(
    grammars: tuple[Grammar, ...], name: str, horizon: int
) -> None:
    policy = WeightedPolicy(stop_probability=0.05)
    sampler, random = Sampler(name, grammars, policy=policy, horizon=horizon), Random(0)
    lengths = Counter(
        len(sampler.draw(grammar.start, random).words) - 1
        for grammar in grammars
        for _ in range(200)
    )
    assert max(lengths) <= horizon
    assert name == "ucs-universal" or lengths[horizon]


def test_mandatory_arguments_fit_whatever_comes_before_them() -> None:
    grammar = small("start x <a>* <b> <b>\n<a> = p\n<b> = q | q r s\n")
    policy = WeightedPolicy(stop_probability=0.01)
    sampler, random = Sampler("gcs", [grammar], policy=policy, horizon=5), Random(0)
    for _ in range(100):
        words = sampler.draw(grammar.start, random).words
        assert len(words) <= 6
        assert words.count("q") == 2


def test_what_cannot_fit_is_finished_in_the_shortest_way() -> None:
    grammar = small("start x p p p <a>\n<a> = q r | q\n")
    sampler = Sampler("gcs", [grammar], horizon=2)
    assert sampler.draw(grammar.start, Random(0)).words == ("x", "p", "p", "p", "q")


def test_arguments_stay_within_their_length() -> None:
    grammar = small("start x -<a>*\n<a> = 0123456789\n")
    sampler, random = Sampler("gcs", [grammar], policy=WeightedPolicy(0.1)), Random(0)
    longest = max(len(sampler.draw(grammar.start, random).words[1]) for _ in range(200))
    assert 50 < longest <= 64


def test_deep_recursion_is_no_problem() -> None:
    grammar = small("start x <a>\n<a> = ()  | <b><a>\n<b> = ()\n")
    sampler = Sampler("gcs", [grammar], policy=UniformPolicy())
    assert sampler.draw(grammar.start, Random(0)).words == ("x",)


def test_repetitions_stop_with_the_stop_probability() -> None:
    grammar = small("start x <a>*\n<a> = p\n")
    sampler, random = Sampler("gcs", [grammar], horizon=1000), Random(0)
    lengths = [len(sampler.draw(grammar.start, random).words) - 1 for _ in range(4000)]
    assert sum(lengths) / len(lengths) == pytest.approx(3, abs=0.2)
    assert lengths.count(0) / len(lengths) == pytest.approx(0.25, abs=0.03)


def test_weights_decide_and_the_uniform_policy_ignores_them() -> None:
    grammar = small("start x <a>\n<a> = p %weight 9 | q\n")

    def share_of_p(policy: WeightedPolicy | UniformPolicy) -> float:
        sampler, random = Sampler("gcs", [grammar], policy=policy), Random(0)
        return sum(sampler.draw(grammar.start, random).words[1] == "p" for _ in range(2000)) / 2000

    assert share_of_p(WeightedPolicy()) == pytest.approx(0.9, abs=0.03)
    assert share_of_p(UniformPolicy()) == pytest.approx(0.5, abs=0.04)
    assert share_of_p(WeightedPolicy(weights={"<x:a> = q": 81.0})) == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_trace_writes_the_same_words_again(grammars: tuple[Grammar, ...], name: str) -> None:
    sampler, random = Sampler(name, grammars), Random(5)
    for grammar in grammars:
        for _ in range(50):
            drawn = sampler.draw(grammar.start, random)
            assert sampler.replay(grammar.start, drawn.trace) == drawn.words


def test_a_trace_that_does_not_fit_is_refused(grammars: tuple[Grammar, ...]) -> None:
    sampler = Sampler("gcs", grammars)
    trace = sampler.draw(Nonterminal("df:start"), Random(1)).trace
    for wrong in (trace[:-1], (*trace, 0), (999, *trace[1:])):
        with pytest.raises(TraceError):
            sampler.replay(Nonterminal("df:start"), wrong)


def test_inputs_of_a_given_length(grammars: tuple[Grammar, ...]) -> None:
    sampler, random = Sampler("gcs", grammars, policy=LengthPolicy()), Random(2)
    ls = next(grammar for grammar in grammars if grammar.name == "ls")
    for length in range(13):
        for _ in range(20):
            drawn = sampler.draw_length(ls.start, random, length)
            assert drawn is not None
            assert drawn.n_arguments == length
            assert sampler.replay(ls.start, drawn.trace) == drawn.words
    assert sampler.draw_length(ls.start, random, 13) is None


def test_a_length_that_no_input_has_gives_none() -> None:
    grammar = small("start x p <a>\n<a> = q | q r\n")
    sampler = Sampler("gcs", [grammar], policy=LengthPolicy())
    assert sampler.draw_length(grammar.start, Random(0), 1) is None
    assert sampler.draw_length(grammar.start, Random(0), 4) is None


def test_steering_divides_the_room_among_repetitions() -> None:
    grammar = small("start x <a>* <b>* -<c>*\n<a> = p\n<b> = q\n<c> = z\n")
    policy = LengthPolicy().steering
    sampler, random = Sampler("gcs", [grammar], policy=policy, horizon=9), Random(0)
    counts: Counter[int] = Counter()
    for _ in range(2000):
        words = sampler.draw(grammar.start, random).words
        assert len(words) == 10
        counts[words.count("p")] += 1
    assert set(counts) == set(range(9))
    assert max(counts.values()) < 1.4 * min(counts.values())


def test_a_volatile_production_makes_the_input_volatile() -> None:
    grammar = small(
        "start x <option>* <b>\noptions\n  -a\n  --now %volatile\n<b> = p | q %volatile\n"
    )
    sampler, random = Sampler("gcs", [grammar]), Random(0)
    seen = set()
    for _ in range(200):
        drawn = sampler.draw(grammar.start, random)
        assert drawn.volatile == ("--now" in drawn.words or "q" in drawn.words)
        seen.add(drawn.volatile)
    assert seen == {True, False}


def test_policies_have_names_and_counts_come_from_a_file(tmp_path: Path) -> None:
    grammar = small("start x <a>\n<a> = p %weight 9 | q\n")
    counts = tmp_path / "counts.json"
    counts.write_text('{"weights": {"<x:a> = p": 0, "<x:a> = q": 7}}')
    chooser = settings_named(str(counts)).chooser
    sampler, random = Sampler("gcs", [grammar], policy=chooser), Random(0)
    assert {sampler.draw(grammar.start, random).words[1] for _ in range(50)} == {"q"}
    assert {type(settings_named(name).chooser) for name in NAMED} == {
        WeightedPolicy,
        UniformPolicy,
        LengthPolicy,
    }
    with pytest.raises(UsageError) as caught:
        settings_named("lenghts")
    assert "lengths" in str(caught.value.hint)
    for wrong in (
        "[]",
        "{",
        '{"weights": {"a": -1}}',
        '{"weights": {"a": "b"}}',
        '{"weights": 3}',
        '{"stop": 0}',
        '{"stop": "x"}',
        '{"once": 1}',
        '{"values": 2}',
        '{"usage_share": -1}',
        '{"usage": []}',
        '{"usage": {"shapes": {"ls": "many"}}}',
        '{"usage": {"shape": {}}}',
        '{"usage": {"by_command": {"ls": {"option": {}}}}}',
        '{"wieghts": {}}',
    ):
        counts.write_text(wrong)
        with pytest.raises(UsageError):
            settings_named(str(counts))
    with pytest.raises(UsageError, match="cannot read"):
        settings_named(str(tmp_path / "none.json"))


def test_counts_of_nothing_leave_the_weights_as_they_are() -> None:
    grammar = small("start x <a>\n<a> = p | q\n")
    policy = WeightedPolicy(weights={"<x:a> = p": 0.0, "<x:a> = q": 0.0})
    sampler, random = Sampler("gcs", [grammar], policy=policy), Random(0)
    assert {sampler.draw(grammar.start, random).words[1] for _ in range(50)} == {"p", "q"}


def test_an_unknown_sampler_is_named_with_the_nearest_one(grammars: tuple[Grammar, ...]) -> None:
    with pytest.raises(UnknownSamplerError, match="did you mean gcs"):
        Sampler("gsc", grammars)
    with pytest.raises(UnknownSamplerError, match="horizon"):
        Sampler("gcs", grammars, horizon=0)


@pytest.mark.parametrize("probability", [0, -1, 1.5])
def test_a_stop_probability_that_is_none_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="stop_probability"):
        WeightedPolicy(probability)


def test_the_reference_replays_a_trace() -> None:
    page = ROOT / "docs" / "reference" / "samplers.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, {})


def test_a_dataset_keeps_a_policy_by_its_name_or_by_the_counts_of_its_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text('{"weights": {"<a> = x": 1, "<a> = y": 2}}')
    second.write_text('{"weights": {"<a> = y": 2.0,\n "<a> = x": 1}}')
    assert policy_label("lengths") == "lengths"
    assert policy_label(str(first)) == policy_label(str(second))
    assert policy_label(str(first)).startswith("file:")
    second.write_text('{"weights": {"<a> = y": 3}}')
    assert policy_label(str(first)) != policy_label(str(second))
    with pytest.raises(UsageError):
        policy_label("lenghts")
