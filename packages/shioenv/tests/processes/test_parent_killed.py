"""Processes end with their parent, however it ends."""

from __future__ import annotations

from support.killed_parent import assert_children_end

EXECUTOR = """
    from operator import is_not
    from shioenv.execution.job import NumberedJob
    from shioenv.execution.local import LocalExecutor
    with LocalExecutor(2) as executor:
        list(executor.map(NumberedJob(is_not), enumerate(range(4))))
        tell()
"""


def test_workers_end_with_an_executor_that_is_killed() -> None:
    assert_children_end(EXECUTOR)
