"""Threads for blocking work: clean-ups are done even if the server is stopping."""

from __future__ import annotations

from threading import Event, Thread

from shioenv_agents.mcp.workers import Threads
from support.waiting import wait_until


def test_clean_ups_that_wait_are_done_before_the_threads_end() -> None:
    threads, go, done = Threads(1), Event(), []

    def clean_up() -> None:
        go.wait(60)
        done.append("waited")

    for _ in range(9):
        threads.submit(clean_up)
    closing = Thread(target=threads.close)
    closing.start()
    wait_until(lambda: threads._threads._shutdown, "the end of new work")
    go.set()
    closing.join(60)
    assert done == ["waited"] * 9
    threads.submit(lambda: done.append("late"))
    assert done[9:] == ["late"]
