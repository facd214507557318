"""The ordinary inputs that run after hostile ones detect their traces: each can fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.wire import Ask
from shioenv.system.store import System
from support.case_files import Sentinel, sentinels

SENTINELS = sentinels()
_PARTS = Request("readlink /proc/self/ns/net; stat -c %d /")
"""Numbers that the kernel assigns to the network and to the layer; they change when these are
new."""


@pytest.fixture(scope="module")
def pristine(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system) as opened:
        yield opened


def _answer(sandbox: NamespaceSandbox, text: str) -> tuple[int, bytes]:
    execution = sandbox.run(Request(text))
    return execution.exit_code, execution.output


@pytest.mark.parametrize("sentinel", SENTINELS, ids=lambda sentinel: sentinel.text[:40])
def test_a_sentinel_notices(sentinel: Sentinel, pristine: NamespaceSandbox, system: System) -> None:
    ordinary = _answer(pristine, sentinel.text)
    assert _answer(pristine, sentinel.text) == ordinary, "it does the same twice"
    with NamespaceSandbox(system) as disturbed:
        disturbed._run(Request(sentinel.noticed), Ask.KEEP)
        assert _answer(disturbed, sentinel.text) != ordinary


def test_sentinels_hide_nothing_from_those_behind_them(system: System) -> None:
    """All traces still exist after the last "look" sentinel, and all but the network's after the
    "ask" sentinel."""
    with NamespaceSandbox(system) as sandbox:
        sandbox.run(Request("true"))
        supervisor, parts = sandbox._process, sandbox.run(_PARTS).output.split()
        for sentinel in SENTINELS:
            if sentinel.section == "write":
                break
            sandbox.run(Request(sentinel.text))
            assert sandbox._process is supervisor, f"opened again after {sentinel.text}"
            network, layer = sandbox.run(_PARTS).output.split()
            assert layer == parts[1], f"a new layer after {sentinel.text}"
            if sentinel.section == "look":
                assert network == parts[0], f"a new network after {sentinel.text}"
    assert [each.section for each in SENTINELS].count("ask") == 1
