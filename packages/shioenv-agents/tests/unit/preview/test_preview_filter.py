"""The filter of previews is compiled by libseccomp from the lists of calls."""

from __future__ import annotations

import importlib.util
import socket

import pytest

from shioenv.native import read_filter
from shioenv_agents.preview import inside
from support.paths import ROOT

SPEC = importlib.util.spec_from_file_location("filter", ROOT / "scripts/filter.py")
assert SPEC is not None
assert SPEC.loader is not None
compiler = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(compiler)


@pytest.mark.parametrize("family", [socket.AF_VSOCK, inside._NO_FAMILY])
def test_it_is_what_libseccomp_makes_of_the_lists(family: int) -> None:
    committed = read_filter(inside.FILTER, {inside.FAMILY: family})
    assert committed == compiler.compile_preview_filter(family), "`make filter` writes it"


def test_a_change_of_a_list_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "ABSENT", ())
    committed = read_filter(inside.FILTER, {inside.FAMILY: 1})
    assert committed != compiler.compile_preview_filter(1)
