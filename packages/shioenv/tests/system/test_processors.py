"""Workers pinned to one processor each, and what inputs see of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from shioenv.behavior.observe import open_sandbox
from shioenv.execution import job as jobs
from shioenv.execution.job import NumberedJob, processors_of_their_own
from shioenv.execution.lanes import Lane
from shioenv.execution.local import LocalExecutor
from shioenv.sandbox.base import LIMITS, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

SYSTEM = "debian-12"
HERE = tuple(sorted(os.sched_getaffinity(0)))


def test_only_a_worker_for_each_processor_stays_on_one() -> None:
    assert processors_of_their_own(open_sandbox, SYSTEM, LIMITS, len(HERE)) == HERE
    assert processors_of_their_own(open_sandbox, SYSTEM, LIMITS, len(HERE) + 1) == ()
    assert processors_of_their_own(open_sandbox, "", LIMITS, len(HERE)) == ()
    assert processors_of_their_own(lambda *_: None, SYSTEM, LIMITS, len(HERE)) == ()  # type: ignore[arg-type]
    assert processors_of_their_own(open_sandbox, SYSTEM, Limits(sandbox="microvm"), len(HERE)) == ()


def test_no_worker_stays_where_the_machine_has_several_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = SimpleNamespace(cpu=SimpleNamespace(count=2))
    built = SimpleNamespace(declaration=SimpleNamespace(machine=machine))
    monkeypatch.setattr(jobs, "find_system", lambda name: built)
    assert processors_of_their_own(open_sandbox, SYSTEM, LIMITS, len(HERE)) == ()


SHOWN = {
    "nproc": "1",
    "grep -c processor /proc/cpuinfo": "1",
    "grep Cpus_allowed: /proc/self/status": "Cpus_allowed:\t1",
    "grep Cpus_allowed_list /proc/self/status": "Cpus_allowed_list:\t0",
    "grep -c . /proc/self/status": "57",
    "grep -h -e Mems -e Spec -e Cpus /proc/self/status /proc/1/status | sort -u | wc -l": "6",
    "cut -d' ' -f39 /proc/self/stat": "0",
    "(exec -a 'a ) b' cut -d')' -f2 /proc/self/stat) | wc -w": "50",
    "perl -ne 'print +(split)[38]' /proc/self/stat": "0",
    "perl -e 'open F, q(/proc/self/task/) . $$ . q(/stat); print +(split q( ), <F>)[38]'": "0",
    "read -ra words < /proc/$$/stat; echo ${words[38]} ${#words[@]}": "0 52",
    "ps -eo psr= | sort -u | tr -d ' '": "0",
    "ps -F | awk '{ print $7 }' | sort -u": "0\nPSR",
    "taskset -p $$": "pid 1000's current affinity mask: 1",
    "taskset -cp 1": "pid 1's current affinity list: 0",
    "taskset -p 1 $$ | tail -n 1": "pid 1000's new affinity mask: 1",
    "taskset -p 3 $$ | tail -n 1": "pid 1000's new affinity mask: 1",
    "taskset -c 0 nproc": "1",
    "taskset -c 1 nproc 2>&1; taskset -c 7 true 2> x; echo $?": "taskset: failed to set pid 1001's "
    "affinity: Invalid argument\n1",
    "taskset -p 1 99999 2>&1": "taskset: failed to get pid 99999's affinity: No such process",
    "su ubuntu -c 'taskset -p 1 1' 2>&1 > x": "taskset: failed to set pid 1's affinity: "
    "Operation not permitted",
    "head -n 1 /proc/stat | cut -d' ' -f1; ls -l /proc/self/stat | cut -c1-10": "cpu\n-r--r--r--",
}
"""Output about processors and of the files that name them, on every host."""


@pytest.mark.parametrize("processor", HERE)
@pytest.mark.parametrize("text", SHOWN)
def test_an_input_does_not_tell_which_processor_it_has(
    sandboxes: dict[int, NamespaceSandbox], text: str, processor: int
) -> None:
    output = sandboxes[processor].run(Request(text)).output.decode()
    assert output.rstrip("\n") == SHOWN[text].rstrip("\n")


@pytest.fixture(scope="module")
def sandboxes(system: System) -> Iterator[dict[int, NamespaceSandbox]]:
    """Open a sandbox on each processor of this host."""
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, HERE)
        opened = {}
        for processor in HERE:
            os.sched_setaffinity(0, {processor})
            opened[processor] = stack.enter_context(NamespaceSandbox(system))
        os.sched_setaffinity(0, HERE)
        yield opened


def places(lane: Lane, task: tuple[int, str]) -> tuple[tuple[int, ...], bytes]:
    return tuple(os.sched_getaffinity(0)), lane.run(task[1]).output


def test_an_input_sees_one_processor_wherever_its_worker_stays() -> None:
    text = "nproc; grep -o 'Cpus_allowed_list.*' /proc/self/status"
    said = set()
    for workers in (len(HERE), len(HERE) + 1):
        with LocalExecutor(workers) as executor:
            job = NumberedJob(places, system=SYSTEM)
            answers = dict(executor.map(job, enumerate([text] * 20))).values()
        stays = workers == len(HERE)
        assert {len(place) for place, _ in answers} == {1 if stays else len(HERE)}
        said |= {output for _, output in answers}
    assert said == {b"1\nCpus_allowed_list:\t0\n"}
