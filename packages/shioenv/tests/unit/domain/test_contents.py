"""The contents that a state knows after an input."""

from __future__ import annotations

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import State

FILE = {
    "perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 3,
    "month": "Oct", "day": 16, "year": 2025, "time": "19:43",
}  # fmt: skip
DOCUMENT = {
    "cwd": "/home", "env": {"PWD": "/home"}, "settings": {}, "shell_options": {}, "fs": {"f": FILE},
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "written", "known"),
    [
        (("=", "/fs/f/size", 5), {}, None),
        (("=", "/fs/f/size", 5), {"f": b"fives"}, b"fives"),
        (("=", "/fs/f/perms", "-rw-------"), {}, b"abc"),
        (("r", "/fs/f"), {}, None),
    ],
)
def test_a_content_of_another_length_is_not_the_one_before(
    operation: Operation, written: dict[str, bytes], known: bytes | None
) -> None:
    before = State(cwd="/home", context=Context(DOCUMENT), written={"f": b"abc"})
    assert before.read("/home/f") == b"abc"
    after = before.after("", Behavior(0, b"", ContextPatch((operation,))), written)
    assert after.read("/home/f") == known
