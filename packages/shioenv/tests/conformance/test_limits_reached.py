"""Every reached limit is reported, and the next run is unaffected."""

from __future__ import annotations

import pytest

from shioenv.sandbox.base import MEBIBYTE, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

BOMB = "for i in {1..400}; do sleep 5 & done; wait"
CASES = (
    (Limits(wall_seconds=1.0), "sleep 9", "wall_seconds"),
    (Limits(cpu_seconds=0.2), "while :; do :; done", "cpu_seconds"),
    (
        Limits(memory_bytes=48 * MEBIBYTE),
        "perl -e '$x = q(a) x 99e6; sleep 9'",
        "memory_bytes",
    ),
    (
        Limits(memory_bytes=48 * MEBIBYTE),
        "perl -e '$i = shmget 1, 80 << 20, 0600 | 01000; shmwrite $i, q(a) x 1024, $_ * 1024, 1024 "
        "for 0 .. 81919; sleep 9'",
        "memory_bytes",
    ),
    (Limits(processes=40, wall_seconds=1.0), BOMB, "processes"),
    (Limits(disk_bytes=4 * MEBIBYTE), "head -c 9M /dev/zero > full", "disk_bytes"),
    (Limits(disk_inodes=64), "mkdir d; cd d; touch {1..99}", "disk_inodes"),
    (Limits(output_bytes=100), "seq 99", "output_bytes"),
    (Limits(drain_bytes=1 * MEBIBYTE), "yes", "drain_bytes"),
    (Limits(scan_seconds=0.002), "head -c 60M /dev/urandom > large", "scan_seconds"),
)


@pytest.mark.parametrize(("limits", "text", "name"), CASES)
def test_a_limit_reached_is_said(system: System, limits: Limits, text: str, name: str) -> None:
    with NamespaceSandbox(system, limits) as sandbox:
        assert name in sandbox.run(Request(text)).limits_hit
        after = sandbox.run(Request("echo $((6 * 7)); ls; ps -e -o comm="))
        assert after.limits_hit == () or limits.output_bytes == 100
        assert after.output.startswith(b"42\n")


def test_a_run_within_its_limits_reaches_none(system: System) -> None:
    with NamespaceSandbox(system) as sandbox:
        assert sandbox.run(Request("ls -la; touch x; seq 99 | sort | head -3")).limits_hit == ()


WORK = "end=$((${EPOCHREALTIME/./} + 200000)); while ((${EPOCHREALTIME/./} < end)); do :; done; "


@pytest.mark.parametrize(
    ("text", "waited"),
    [
        ("sleep 9", True),
        ("sleep 9 | cat", True),
        (f"{WORK} sleep 9", True),
        (f"{WORK} sleep .1; {WORK} sleep 9", False),
        ("while :; do :; done", False),
        ("sleep .5; while :; do :; done", False),
        ("true", False),
    ],
)
def test_what_ran_out_of_time_in_its_sleep_is_told_from_what_worked(
    system: System, text: str, waited: bool
) -> None:
    with NamespaceSandbox(system, Limits(wall_seconds=0.8)) as sandbox:
        assert sandbox.run(Request(text)).waited is waited
