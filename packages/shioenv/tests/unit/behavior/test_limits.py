from dataclasses import fields
from typing import Any

import pytest

from shioenv.errors import LimitsError
from shioenv.sandbox.base import Limits


def test_limits_refuse_what_they_do_not_know() -> None:
    with pytest.raises(TypeError):
        Limits(wall_second=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("field", [field.name for field in fields(Limits)])
def test_a_limit_is_above_zero(field: str) -> None:
    given: dict[str, Any] = {field: -1}
    with pytest.raises(LimitsError, match=field):
        Limits(**given)


def test_background_time_may_be_nothing() -> None:
    assert Limits(background_seconds=0).background_seconds == 0
