"""Parts of a stream: together they are the whole, and they draw only what they need."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice

import pytest

from shioenv.errors import UsageError
from shioenv.seeding import generator
from shioenv.synthesis import groups
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import settings_named
from shioenv.synthesis.sample import _placed, _stream, grammars_for, numbers_of, sample
from shioenv.synthesis.traces import Sample
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System

COUNT, PARTS = 240, 3
MISTAKEN = Drawing(seed=5, policy="mixed", mistakes=0.5, commands=("ls", "cat"))
IN_SESSIONS = Drawing(seed=5, policy="paper", session_length=4, commands=("ls", "touch", "cat"))


def part(drawing: Drawing, text: str, system: System, count: int = COUNT) -> dict[int, Sample]:
    drawing = drawing.but(part=text)
    grammars = grammars_for(system, drawing)
    numbers = numbers_of(drawing, count, system=system, grammars=grammars)
    samples = sample(drawing, count=len(numbers), system=system, grammars=grammars)
    return dict(zip(numbers, samples, strict=True))


@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(seed=5, policy="mixed"),
        Drawing(seed=5, policy="paper", commands=("df", "ls", "tar")),
        MISTAKEN,
        IN_SESSIONS,
    ],
    ids=["mixed", "paper", "mistakes", "sessions"],
)
def test_all_parts_together_are_the_stream(drawing: Drawing, system: System) -> None:
    whole = list(sample(drawing, count=COUNT, system=system))
    parts = [part(drawing, f"{number}/{PARTS}", system) for number in range(1, PARTS + 1)]
    assert sum(map(len, parts)) == COUNT
    union = {number: one for each in parts for number, one in each.items()}
    assert [str(union[number]) for number in range(COUNT)] == list(map(str, whole))
    assert len({(one.cwd, one.history, one.input.text) for one in whole}) == COUNT
    longer = part(drawing, f"1/{PARTS}", system, COUNT + 40)
    assert list(map(str, longer.values()))[: len(parts[0])] == list(map(str, parts[0].values()))


def test_rows_of_a_session_are_in_one_part(system: System) -> None:
    found = part(IN_SESSIONS, "2/3", system, 60)
    assert {len(one.history) for one in found.values()} == {0, 1, 2, 3}
    assert {number // 4 % 3 for number in found} == {1}


def test_a_part_of_mixed_writes_no_input_of_another(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: Counter[str] = Counter()
    write = groups.GroupedStream._write

    def counted(self: groups.GroupedStream, *arguments: object) -> Sample | None:
        written["all"] += 1
        return write(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(groups.GroupedStream, "_write", counted)
    own = part(Drawing(seed=5, policy="mixed"), "2/8", system, 2000)
    assert 2000 * 0.8 / 8 < len(own) < 2000 * 1.2 / 8
    assert written["all"] < 1.5 * len(own)


def test_parts_have_equal_loads_and_no_group_few_options_only(system: System) -> None:
    drawing = Drawing(seed=5, policy="mixed")
    grammars = grammars_for(system, drawing)
    stream = _stream(
        _placed(drawing, system), partial(catalogue, system), grammars, settings_named("mixed")
    )
    grouped = groups.GroupedStream(stream, 5)
    count = 40_000
    drawn = list(islice(grouped.skeletons(generator(6, "test")), count))
    loads = Counter(map(grouped.group_of, drawn))
    for parts in (2, 4, 8):
        own = [sum(loads[one] for one in grouped.part(n + 1, parts)) for n in range(parts)]
        assert sum(own) == count
        assert max(own) < 1.1 * count / parts
    n_options = {grammar.name: len(grammar.options) for grammar in grammars}
    most = Counter[int]()
    for one in drawn:
        group = grouped.group_of(one)
        most[group] = max(most[group], n_options[one.parts[0]])
    assert len(most) == groups.GROUPS
    assert min(most.values()) >= groups.FEW_OPTIONS


def test_options_come_in_turn_first_without_others_that_may_be_left_out(system: System) -> None:
    drawing = Drawing(seed=5, policy="mixed", commands=("curl", "df"))
    stream = _stream(
        _placed(drawing, system),
        partial(catalogue, system),
        grammars_for(system, drawing),
        settings_named("mixed"),
    )
    (directory,) = stream.places
    random = generator(1, "test")
    for name, option in [("curl", "--tlsv1.1"), ("curl", "--insecure"), ("df", "--help")]:
        for alone in (True, False):
            drawn = stream.with_option(random, directory, name, option, alone=alone)
            assert drawn is not None
            assert option in drawn.input.input_args
    short = [
        len(drawn.input.input_args)
        for _ in range(20)
        if (drawn := stream.with_option(random, directory, "df", "--total", alone=True))
    ]
    assert sum(short) / len(short) < 4
    options = stream.places[directory].writer("df").options.lines()
    known = {name for spec in grammars_for(system, drawing)[1].options for name in spec.names}
    assert set(options) <= known


@pytest.mark.parametrize("text", ["3/2", "0/2", "1", "a/b", "1/2/3", "-1/2"])
def test_a_part_that_does_not_exist_is_refused(text: str, system: System) -> None:
    with pytest.raises(UsageError, match="invalid part"):
        part(Drawing(policy="paper", commands=("ls",)), text, system)


def test_more_parts_than_groups_are_refused(system: System) -> None:
    with pytest.raises(UsageError, match="too many"):
        part(Drawing(policy="mixed"), "1/1000", system)


@pytest.mark.parametrize("text", ["", "2/3"])
def test_samples_continue_from_a_kept_state(text: str, system: System) -> None:
    drawing = Drawing(seed=5, policy="mixed", part=text)
    first, second = (sample(drawing, system=system) for _ in range(2))
    assert isinstance(first, groups.GroupedSamples)
    assert isinstance(second, groups.GroupedSamples)
    drawn = [next(first) for _ in range(700)]
    second.restore(first.state())
    assert second.drawn == 700
    later = [str(next(first)) for _ in range(100)]
    assert [str(next(second)) for _ in range(100)] == later
    assert not set(map(str, drawn)).intersection(later)
