"""The counts in the table of learners."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shioenv_paper.learners import MEASURES, PolicyEpisode, PolicyRun, learners_table

GOOD = PolicyEpisode(
    regime="GCPN", seed=0, number=1, reward=0.25, irreducibility=1.0, necessary=0.25,
    n_arguments=3, exit_code=0, volatile=False, command="ls", input="ls -a -l x",
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"exit_code": 1}, {"volatile": True}, {"n_arguments": 2}, {"irreducibility": 0.69},
     {"irreducibility": None}],
)  # fmt: skip
def test_useful_inputs_are_all_of_it(change: dict[str, object]) -> None:
    assert GOOD.useful
    assert not replace(GOOD, **change).useful  # type: ignore[arg-type]


def test_measures_count_what_was_refused() -> None:
    failed = replace(GOOD, exit_code=2, irreducibility=None, command="df")
    one = PolicyRun("GCPN", 0, (GOOD, GOOD, failed), ended=6)
    found = {name: of(one) for name, of in MEASURES.items()}
    assert found["R"] == found["unique"] * 2 == pytest.approx(2 / 3)
    assert found["failing"] == pytest.approx(1 / 3)
    assert (found["commands"], found["refused"]) == (2, 0.5)
    assert found["useful"] == pytest.approx(2 / 6)


def test_table_has_a_row_for_each_regime_with_intervals_over_seeds() -> None:
    played = [PolicyRun("UCRT", 0, (), 4)]
    played += [
        PolicyRun("GCPN", seed, (replace(GOOD, irreducibility=score),), 1)
        for seed, score in enumerate((0.8, 0.9, 1.0))
    ]
    made = learners_table(played, 5000)
    rows = {row[0]: row[1:] for row in made.rows}
    assert list(rows) == ["UCRT", "GCPN"]
    assert rows["GCPN"][:2] == ("3", "0.900 (± 0.248)")
    assert rows["UCRT"][:2] == ("1", "0.000")
