"""Processors are busy no longer than the process that keeps them busy lives."""

from __future__ import annotations

from support.killed_parent import assert_children_end

BUSY = """
    from shioenv_paper.repeats import busy
    with busy():
        tell()
"""


def test_busy_processes_end_with_one_that_is_killed() -> None:
    assert_children_end(BUSY)
