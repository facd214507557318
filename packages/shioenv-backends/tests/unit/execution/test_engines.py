"""The Ray engine without a cluster: refused requests, and the distribution of workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shioenv.dataset.generate import run
from shioenv.errors import HostError, MissingExtraError, UsageError
from shioenv.execution.local import executor_named
from shioenv_backends.ray_executor import Priority, workers_per_node
from support.dataset_fakes import plan, samples


def make(directory: Path, engine: str = "ray", address: str | None = None) -> None:
    executor = executor_named(engine, address=address)
    run(directory, plan(), samples(), count=3, system=str(directory), executor=executor)


def test_missing_ray_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError) as caught:
        make(tmp_path / "a")
    assert caught.value.hint == "pip install 'shioenv[ray]'"
    assert not (tmp_path / "a").exists()


def test_engines_and_addresses_that_cannot_be_meant(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown engine 'rya'"):
        make(tmp_path / "a", "rya")
    with pytest.raises(UsageError, match="--address needs --engine ray"):
        make(tmp_path / "a", "local", "auto")
    assert not (tmp_path / "a").exists()
    with pytest.raises(UsageError, match="'ray://here:1' is not an address"):
        make(tmp_path / "b", address="ray://here:1")


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"no Ray cluster responds at 127\.0\.0\.1:1"):
        make(tmp_path / "a", address="127.0.0.1:1")


@pytest.mark.parametrize(
    ("wanted", "working", "shares"),
    [
        (None, {}, {"a": 4, "b": 1, "c": 0}),
        (3, {}, {"a": 2, "b": 1, "c": 0}),
        (9, {}, {"a": 4, "b": 1, "c": 0}),
        (5, {"a": 4}, {"a": 4, "b": 1, "c": 0}),
        (4, {"a": 4}, {"a": 4, "b": 0, "c": 0}),
    ],
)
def test_workers_are_spread_evenly(
    wanted: int | None, working: dict[str, int], shares: dict[str, int]
) -> None:
    assert workers_per_node({"a": 4, "b": 1, "c": 0}, working, wanted) == shares


def test_a_priority_that_cannot_be_had_is_refused() -> None:
    here = Priority.here()
    here.take()
    assert Priority.here() == here
