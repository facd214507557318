"""People's inputs beside what policies draw."""

from __future__ import annotations

from shioenv.report.likeness import Comparison, Derivable, Likeness, Share


def test_a_comparison_is_a_part_of_a_page() -> None:
    half = Share(1, 2)
    one = Likeness(5, 1.25, 0.5, half, Share(0, 2), 0.123, 0.2, 0.3, 0.4, Share(3, 7))
    derived = Derivable(9, Share(81, 90), Share(1000, 1000), half)
    made = Comparison(
        derived, (1.0, 0.75), {"mixed": one, "paper": one}, {"mixed": 0.5, "paper": 2}
    )
    lines = made.markdown("Made by hand.").splitlines()
    assert lines[0] == "## Beside what people write"
    assert lines[2].startswith("Made by hand. ")
    assert "|  | `mixed` | `paper` |" in lines
    assert "| options per command (people: 1.00) | 1.25 | 1.25 |" in lines
    assert "| normal forms reached, of 7 | 3 | 3 |" in lines
    assert "| drawing an input, ms | 0.50 | 2.00 |" in lines
    assert "| options | 81 | 90 | 90.0% |" in lines
    assert "| operands | 1,000 | 1,000 | 100.0% |" in lines
