"""Samples: one deterministic stream of unique inputs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from hashlib import sha256
from itertools import islice
from typing import Any

import pytest

from shioenv.domain.inputs import SEPARATORS, Input, Segment
from shioenv.errors import SamplesExhaustedError, UnboundTokenError, UsageError
from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.symbols import Grammar
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import LengthPolicy, WeightedPolicy
from shioenv.synthesis.sample import draw_samples
from shioenv.synthesis.samplers import Sampler
from shioenv.synthesis.traces import Sample

HEADER = "command {}\nmanual x(1), T 1\npackage t\nvolatile {}\n"
HERE = ("/home/ubuntu",)
COMMANDS = ["cat", "df", "echo", "ls"]


def small(name: str, body: str, volatile: str = "no") -> Grammar:
    return read_grammar(HEADER.format(name, volatile) + body, f"{name}.grammar").grammar


PRODUCER = small("producer", "start producer <Word>*\n")
FILTER = small("filter", "start filter <File>\npipe filter -s\n", "yes: it says so")


def draw(count: int, **options: object) -> list[Sample]:
    arguments: dict[str, object] = {
        "seed": 1,
        "catalogue": stand_in_catalogue(),
        "start_directories": HERE,
        "commands": tuple(COMMANDS),
    } | options
    names = {item.name for item in fields(Drawing)} - {"policy"}
    drawing = Drawing(**{key: arguments.pop(key) for key in names & arguments.keys()})  # type: ignore[arg-type]
    return list(draw_samples(drawing, count=count, **arguments))  # type: ignore[arg-type]


def after_operators(given: Input) -> Iterator[tuple[Segment, str]]:
    """Yield each command after the first with the separator before it."""
    separators = [operator for operator in given.operators if operator in SEPARATORS]
    return zip(given.segments[1:], separators, strict=True)


def test_the_same_seed_gives_the_same_stream_and_another_one_another() -> None:
    first, second, other = draw(300), draw(300), draw(300, seed=2)
    assert first == second
    assert first != other


def test_a_longer_stream_begins_with_the_shorter_one() -> None:
    assert draw(400)[:100] == draw(100)


def test_inputs_are_unique() -> None:
    samples = draw(3000, start_directories=("/a", "/b"))
    assert len({(one.cwd, one.input.text) for one in samples}) == 3000


def test_commands_and_start_directories_are_drawn_uniformly() -> None:
    samples = draw(4000, composite_share=0, start_directories=("/a", "/b"), policy=WeightedPolicy())
    for counts in (
        Counter(one.trace[0].grammar for one in samples),
        Counter(one.cwd for one in samples),
    ):
        assert max(counts.values()) / min(counts.values()) < 1.3


def test_a_used_up_command_leaves_the_draw() -> None:
    grammars = [small("one", "start one a\nstart one b\n"), PRODUCER]
    samples = draw(300, grammars=grammars, composite_share=0)
    assert Counter(one.trace[0].grammar for one in samples)["one"] == 2


def test_when_nothing_new_is_left_the_stream_says_so() -> None:
    grammars = [small("one", "start one a\nstart one b\n")]
    assert len(draw(2, grammars=grammars, composite_share=0)) == 2
    with pytest.raises(SamplesExhaustedError, match="only 2"):
        draw(3, grammars=grammars, composite_share=0)
    with pytest.raises(SamplesExhaustedError):
        draw(1000, grammars=grammars, composite_share=0.5, max_segments=2)


def test_a_stream_without_count_goes_on() -> None:
    drawing = Drawing(seed=1, start_directories=HERE, commands=("ls",))
    stream = draw_samples(drawing, catalogue=stand_in_catalogue())
    assert len(list(islice(stream, 50))) == 50


def test_without_a_share_there_is_no_composite() -> None:
    assert all(not one.input.operators for one in draw(500, composite_share=0))


def test_composites_have_the_share_and_the_segments_asked_for() -> None:
    samples = draw(2000, composite_share=0.5, policy=WeightedPolicy())
    composite = [one for one in samples if one.input.operators]
    assert len(composite) / len(samples) == pytest.approx(0.5, abs=0.06)
    assert {len(one.input.segments) for one in composite} == {1, 2, 3}
    assert all(len(one.trace) == len(one.input.segments) for one in composite)
    operators = Counter(operator for one in composite for operator in one.input.operators)
    assert set(operators) >= {"&&", "||", ";", ">", ">>"}


def test_to_the_right_of_a_pipe_stand_only_commands_made_for_it() -> None:
    samples = draw(600, grammars=[PRODUCER, FILTER], composite_share=0.9)
    piped = [
        segment
        for one in samples
        for segment, operator in after_operators(one.input)
        if operator == "|"
    ]
    assert piped
    assert {segment.command for segment in piped} == {"filter"}
    assert all([a.text for a in segment.arguments] == ["-s"] for segment in piped)


def test_redirections_end_the_input_and_are_never_arguments() -> None:
    for one in draw(800, composite_share=0.9):
        operators = one.input.operators
        assert not {">", ">>"} & set(operators[:-1])
        if operators and operators[-1] in {">", ">>"}:
            assert one.input.tokens[-1].role == "target"
        assert Input.from_marked(one.input.input_args) == one.input


def test_a_volatile_command_makes_the_whole_input_volatile() -> None:
    for one in draw(300, grammars=[PRODUCER, FILTER], composite_share=0.6):
        assert one.volatile == any(trace.grammar == "filter" for trace in one.trace)


def test_a_sample_can_be_written_again_from_its_trace() -> None:
    grammars = {g.name: bind(g, stand_in_catalogue()) for g in load_grammars(COMMANDS)}
    sampler = Sampler("gcs", tuple(grammars.values()))
    for one in draw(200, policy=WeightedPolicy()):
        for trace, segment in zip(one.trace, one.input.segments, strict=True):
            grammar = grammars[trace.grammar]
            start = grammar.pipe if trace.piped and grammar.pipe else grammar.start
            choices = [choice for choice in trace.choices if isinstance(choice, int)]
            words = sampler.replay(start, choices)
            assert words == (segment.command, *(a.marked for a in segment.arguments))


def test_every_length_is_filled_equally() -> None:
    samples = draw(1300, composite_share=0, policy=LengthPolicy(range(1, 13)))
    lengths = Counter(one.input.n_arguments for one in samples)
    assert set(lengths) == set(range(1, 13))
    assert max(lengths.values()) - min(lengths.values()) <= 1
    again = draw(700, composite_share=0, policy=LengthPolicy(range(1, 13)))
    assert again == samples[:700]


def test_every_length_is_filled_equally_where_every_production_may_follow() -> None:
    drawing = Drawing(sampler="ucs-universal", seed=1, start_directories=HERE, composite_share=0)
    stream = draw_samples(
        drawing, count=1200, catalogue=stand_in_catalogue(), policy=LengthPolicy(range(1, 13))
    )
    lengths = Counter(one.input.n_arguments for one in stream)
    assert set(lengths.values()) == {100}


def test_a_length_without_new_inputs_leaves_the_rounds() -> None:
    samples = draw(300, composite_share=0, policy=LengthPolicy([0, 1, 2, 30]))
    lengths = Counter(one.input.n_arguments for one in samples)
    assert lengths[0] == len(COMMANDS)
    assert abs(lengths[1] - lengths[2]) <= 1
    with pytest.raises(SamplesExhaustedError, match="0 to 0 arguments"):
        draw(10, composite_share=0, policy=LengthPolicy([0]))
    with pytest.raises(UsageError):
        LengthPolicy([])


def test_in_a_composite_input_the_first_command_has_the_length() -> None:
    for one in draw(300, composite_share=0.5, policy=LengthPolicy([3])):
        assert len(one.input.segments[0].arguments) == 3


def test_a_volatile_alternative_makes_its_input_volatile() -> None:
    flaky = small("flaky", "start flaky <a>*\n<a> = p | q %volatile\n")
    for one in draw(100, grammars=[flaky, PRODUCER]):
        texts = [(s.command, a.text) for s in one.input.segments for a in s.arguments]
        assert one.volatile == (("flaky", "q") in texts)


def test_redirections_that_a_grammar_writes_are_no_arguments() -> None:
    reader = small("reader", "start reader <a>* < <File>\n<a> = -p\n")
    for one in draw(30, grammars=[reader]):
        assert one.input.segments[0].command == "reader"
        assert all(a.text == "-p" for s in one.input.segments for a in s.arguments)
        assert "<" in one.input.operators


def test_values_may_depend_on_the_start_directory() -> None:
    grammars = [small("one", "start one <File>\n")]
    samples = draw(
        4,
        grammars=grammars,
        composite_share=0,
        policy=WeightedPolicy(),
        start_directories=("/a", "/b"),
        catalogue=lambda cwd: {"File": [f"{cwd[1:]}{number}" for number in (1, 2)]},
    )
    assert {(one.cwd, one.input.text) for one in samples} == {
        ("/a", "one a1"),
        ("/a", "one a2"),
        ("/b", "one b1"),
        ("/b", "one b2"),
    }


def test_a_command_without_values_is_left_out_unless_it_is_the_only_one() -> None:
    needy = small("needy", "start needy <ZipFile>\n")
    samples = draw(20, grammars=[needy, PRODUCER], catalogue={"Word": "abcdefgh"})
    assert {trace.grammar for one in samples for trace in one.trace} == {"producer"}
    with pytest.raises(UnboundTokenError):
        draw(1, grammars=[needy], catalogue={})


def test_impossible_requests_are_refused_before_the_first_sample() -> None:
    refused: tuple[dict[str, Any], ...] = (
        {"start_directories": ()},
        {"composite_share": 1.5},
        {"max_segments": 0},
    )
    for wrong in refused:
        with pytest.raises(UsageError):
            draw(1, **wrong)


LETTERS = small(
    "letters",
    "options <option>\n  -a, --all\n  -b <letter>\n  --color[=<letter>]\n  -v\n"
    "<letter> = a | b | c | d | e | f\n"
    "start letters <option>* <letter>*\n",
)

STREAMS: dict[str, tuple[dict[str, Any], str]] = {
    "mixed": ({}, "8124745a0654e713"),
    "paper": ({"policy": "paper"}, "7cef4cd1129367c3"),
    "lengths": ({"policy": "lengths"}, "a8b1a91bbb147885"),
    "mistakes": ({"mistakes": 0.5}, "84864e8774c00aa6"),
}
"""Different settings, and the SHA-256 of the first 300 samples drawn with them."""


@pytest.mark.parametrize("name", STREAMS)
def test_the_stream_of_a_seed_stays_what_it_is(name: str) -> None:
    settings, digest = STREAMS[name]
    drawing = Drawing(seed=3, start_directories=("/a", "/b"), **settings)
    grammars = [LETTERS, PRODUCER, FILTER]
    found = sha256()
    for one in draw_samples(drawing, count=300, catalogue=stand_in_catalogue(), grammars=grammars):
        fields_of = (one.cwd, one.input.text, one.history, one.mistake, one.volatile)
        found.update(repr(fields_of).encode())
    assert found.hexdigest()[:16] == digest
