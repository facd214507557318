"""Where inputs run is said in limits, and on the command line in words."""

from __future__ import annotations

import pytest

from shioenv.cli.shared import SLOWER, limits_of, record_limits
from shioenv.errors import LimitsError, UsageError
from shioenv.recording.bounds import LIMITS
from shioenv.sandbox.base import Limits


def test_an_unknown_sandbox_is_refused_with_the_nearest() -> None:
    with pytest.raises(LimitsError, match="microwm") as caught:
        Limits(sandbox="microwm")
    assert "microvm" in (caught.value.hint or "")


@pytest.mark.parametrize(("said", "runs"), [("input", 1), ("never", 0), ("7", 7)])
def test_how_often_a_machine_is_restored(said: str, runs: int) -> None:
    assert limits_of(sandbox="microvm", revert=said).revert == runs


@pytest.mark.parametrize("said", ["0", "-1", "often", "1.5", ""])
def test_what_says_no_such_thing_is_refused(said: str) -> None:
    with pytest.raises(UsageError):
        limits_of(sandbox="microvm", revert=said)


def test_walls_are_longer_where_the_processor_may_be_simulated() -> None:
    assert limits_of() == Limits()
    assert record_limits(sandbox="microvm").wall_seconds == LIMITS.wall_seconds * SLOWER
    assert limits_of(3.0, sandbox="microvm").wall_seconds == 3.0
