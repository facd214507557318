"""The effort for records, summed and printed."""

from __future__ import annotations

from shioenv.recording.effort import Effort


def test_efforts_add_up_and_the_first_trouble_stays() -> None:
    total = Effort()
    total.add(Effort(ran=7, own_seconds=1.0, lane_seconds=4.0, asked=8, found=2, trouble="full"))
    total.add(Effort(ran=3, own_seconds=1.0, lane_seconds=1.0, checked=1, trouble="damaged"))
    total.add(Effort(sandbox_seconds=0.5, opening_seconds=1.0, drawing_seconds=0.25))
    assert total == Effort(10, 2.0, 0.5, 1.0, 5.0, 0.25, 8, 2, 1, 0, "full")
    document = total.to_json(4.0)
    assert (document["executed"], document["executed_per_second"]) == (10, 2.5)
    assert document["seconds_in"] == {
        "commands": 2.0, "sandbox": 0.5, "opening": 1.0, "recording": 1.5, "drawing": 0.25,
    }  # fmt: skip
    assert document["cache"]["hit_rate"] == 0.25


def test_nothing_done_has_no_rates() -> None:
    document = Effort().to_json(0.0)
    assert document["executed_per_second"] is None
    assert set(document["seconds_in"].values()) == {0.0}
    assert document["cache"]["hit_rate"] is None
