"""People's inputs compared with inputs drawn by policies."""

from __future__ import annotations

import pytest

from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import draw_samples
from shioenv.synthesis.usage_tables import shipped_usage
from shioenv_eval.grammars.describe import Describer
from shioenv_eval.report.likeness import (
    Comparison,
    Derivable,
    Likeness,
    Share,
    divergence,
    measure_likeness,
    normal_form,
    normal_forms,
)
from support.nightly import LARGER, by_day, scaled


def likeness_of(policy: str, count: int, seed: int = 4) -> Likeness:
    """The likeness of so many inputs that the policy draws."""
    drawing = Drawing(policy=policy, start_directories=("/home/ubuntu",), seed=seed)
    drawn = draw_samples(drawing, count=count, catalogue=stand_in_catalogue())
    grammars = load_grammars()
    inputs = [one.input for one in drawn]
    return measure_likeness(inputs, Describer(grammars), grammars, shipped_usage(), frozenset())


def test_a_comparison_is_a_part_of_a_page() -> None:
    half = Share(1, 2)
    one = Likeness(5, 1.25, 0.5, half, Share(0, 2), 0.123, 0.2, 0.3, 0.4, Share(3, 7))
    derived = Derivable(9, Share(81, 90), Share(1000, 1000), half)
    made = Comparison(
        derived, (1.0, 0.75), {"mixed": one, "paper": one}, {"mixed": 0.5, "paper": 2}
    )
    lines = made.markdown("Made by hand.").splitlines()
    assert lines[0] == "## Comparison with inputs written by people"
    assert lines[2].startswith("Made by hand. ")
    assert "|  | `mixed` | `paper` |" in lines
    assert "| options per command (people: 1.00) | 1.25 | 1.25 |" in lines
    assert "| normal forms sampled, of 7 | 3 | 3 |" in lines
    assert "| time per sampled input, ms | 0.50 | 2.00 |" in lines
    assert "| options | 81 | 90 | 90.0% |" in lines
    assert "| operands | 1,000 | 1,000 | 100.0% |" in lines


@LARGER
@pytest.mark.parametrize("policy", ["mixed", "people"])
def test_no_option_is_repeated_in_vain(policy: str) -> None:
    made = [likeness_of(policy, scaled(80, 600), seed) for seed in (4, 5, 6)]
    whole = sum(one.repeated.whole for one in made)
    assert whole > scaled(36, 300)
    assert sum(one.repeated_in_vain.part for one in made) <= 0.02 * whole
    assert sum(one.repeated.part for one in made) <= 0.05 * whole


@pytest.mark.parametrize("count", by_day([300, 1500], 2))
def test_people_are_drawn_nearer_to_the_table_than_the_grammars_weights(count: int) -> None:
    def measured(policy: str) -> tuple[float, float, float]:
        made = likeness_of(policy, count)
        return made.option_sets, made.utilities, made.operators

    people, mixed, paper = measured("people"), measured("mixed"), measured("paper")
    assert people[0] < mixed[0] < paper[0]
    assert people[1] < mixed[1] < paper[1]
    assert people[2] < mixed[2] < paper[2]
    if count == 1500:  # fewer are further away by chance
        assert people[0] < 0.25 < mixed[0] < 0.5 < paper[0]


def test_divergence_is_in_bits() -> None:
    assert divergence({"a": 1}, {"a": 5}) == 0
    assert divergence({"a": 1}, {"b": 1}) == 1
    assert divergence({"a": 1, "b": 1}, {"a": 1}) == pytest.approx(0.3113, abs=1e-4)
    assert divergence({}, {"a": 1}) == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ls -la a b", "ls -al A"),
        ("ls -l -a", "ls -l -a"),
        ("head -n 5 x", "head -n N A"),
        ("head -n5 x", "head -n N A"),
        ("head -5 x", "head -N A"),
        ("cut -d: -f2 x", "cut -d A -f N A"),
        ("df --output=size /", "df --output=V A"),
        ("find . -name '*.c' -exec ls {} \\;", "find A -name A -exec A"),
        ("ls | wc -l > x", "ls | wc -l > A"),
        ("/bin/ls x 2>/dev/null", "ls A > A"),
    ],
)
def test_the_normal_form_of_an_input(text: str, wanted: str) -> None:
    shell_input = InputParser(load_grammars(["ls", "head", "cut", "df", "find", "wc"])).parse(text)
    assert normal_form(shell_input).replace(" > A", " >").split(" >")[0] == wanted.split(" >")[0]


def test_normal_forms_are_those_of_single_commands() -> None:
    parser = InputParser(load_grammars(["ls", "wc"]))
    assert normal_forms(["ls -a", "ls -a x | wc", "ls -a  # all"], parser) == {"ls -a"}
