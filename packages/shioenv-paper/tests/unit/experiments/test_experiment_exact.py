"""Completely executed inputs: their kept parts, their selection, and the continuation of a stopped
call."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shioenv.errors import DatasetCorruptError, DatasetMismatchError, DatasetStorageError
from shioenv.files.journal import checksummed, sound
from shioenv_paper import exact
from shioenv_paper.exact import (
    KnownInput,
    Passed,
    collect_exact_inputs,
    execute_sub_inputs,
    masks_of,
    wanted_by_length,
    weighed,
)
from shioenv_paper.experiment_journal import JOURNAL
from shioenv_paper.setting import ExperimentSetting, Stream
from support.experiment_fakes import (
    SYSTEM,
    FakeExecutor,
    FakeRunner,
    at_random,
    needing,
    sample,
    samples,
    stream,
)


@pytest.fixture(autouse=True)
def _system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "stream", stream)
    monkeypatch.setattr(ExperimentSetting, "system", SYSTEM)


def setting_of(out: Path, seed: int = 0, fail_after: int | None = None) -> ExperimentSetting:
    return ExperimentSetting(out=out, seed=seed, executor=FakeExecutor(fail_after))


def executed_by(setting: ExperimentSetting) -> int:
    """Return the number of inputs executed so far."""
    assert isinstance(setting.executor, FakeExecutor)
    return setting.executor.executed


def test_scores_of_inputs_whose_needed_arguments_are_known() -> None:
    assert needing(4, 0, 1, 2, 3).irreducibility == 1
    assert needing(4).irreducibility == 0
    # of two arguments one is needed: of {a}, {b} and the empty set only {a} does the same
    assert needing(2, 0).irreducibility == 0.5
    assert weighed(1, b"\1") == 1
    assert weighed(1, b"\0") == 0


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_a_line_of_the_journal_gives_the_input_back(n: int) -> None:
    known = at_random(n, seed=n, number=17)
    assert msgspec.json.decode(msgspec.json.encode(known), type=KnownInput) == known


def test_every_sub_input_is_executed_and_what_differs_is_kept() -> None:
    observer: Any = FakeRunner()
    found = execute_sub_inputs(observer, (4, sample("needs", "x", "y", "z")))
    assert isinstance(found, KnownInput)
    assert found.number == 4
    with_x = {mask for mask in range(7) if mask & 1}
    assert set(range(1, 7)) - masks_of(found.differs) == with_x
    assert found.irreducibility == needing(3, 0).irreducibility
    assert {"needs x", "needs y z", "needs x y"} <= set(observer.texts)


def test_inputs_whose_parts_wait_are_passed_over() -> None:
    observer: Any = FakeRunner()
    found = execute_sub_inputs(observer, (6, sample("needs", "x", "waits", "last")))
    assert found == Passed(6, 3, "waiting")


def test_volatile_and_slow_inputs_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    observer: Any = FakeRunner()
    assert execute_sub_inputs(observer, (3, sample("needs", "x", "random"))) == Passed(
        3, 2, "volatile"
    )
    monkeypatch.setattr(exact, "SLOW_SECONDS", 0.0)
    assert execute_sub_inputs(observer, (5, sample("needs", "x", "y"))) == Passed(5, 2, "slow")


def test_short_inputs_are_more_than_long_ones() -> None:
    assert wanted_by_length(5, 9) == {**dict.fromkeys(range(2, 8), 20), 8: 5, 9: 5}
    assert wanted_by_length(2, 3) == {2: 8, 3: 8}


def test_the_first_inputs_of_each_length_are_taken(tmp_path: Path) -> None:
    found = collect_exact_inputs(setting_of(tmp_path), {2: 4, 3: 3})
    # 4, 9, 14 are declared volatile; 3, 10 and 17 turn out to be
    assert [(known.n, known.number) for known in found.inputs] == [
        (2, 0), (2, 2), (2, 6), (2, 8), (3, 1), (3, 5), (3, 7),
    ]  # fmt: skip
    assert found.passed == {"slow": 0, "waiting": 0, "volatile": 1, "declared volatile": 1}
    assert found.reused == 0


def test_what_is_there_is_not_executed_again(tmp_path: Path) -> None:
    first = collect_exact_inputs(setting_of(tmp_path), {2: 2, 3: 2})
    setting = setting_of(tmp_path)
    assert collect_exact_inputs(setting, {2: 2, 3: 2}).inputs == first.inputs
    assert executed_by(setting) == 0
    more = collect_exact_inputs(setting, {2: 4, 3: 2})
    assert executed_by(setting) == 2
    assert set(first.inputs) < set(more.inputs)
    assert more.reused == 4
    assert collect_exact_inputs(setting, {2: 1}).inputs == first.inputs[:1]


def test_a_stopped_call_goes_on(tmp_path: Path) -> None:
    setting = setting_of(tmp_path / "stopped", fail_after=3)
    with pytest.raises(KeyboardInterrupt):
        collect_exact_inputs(setting, {2: 4, 3: 3})
    journal = setting.data / "exact" / JOURNAL
    with journal.open("ab") as file:
        file.write(b'{"number": 8, "n_argu')  # killed while it wrote
    found = collect_exact_inputs(setting_of(tmp_path / "stopped"), {2: 4, 3: 3})
    assert found.inputs == _untimed(
        collect_exact_inputs(setting_of(tmp_path / "whole"), {2: 4, 3: 3}), found
    )
    assert b"n_argu{" not in journal.read_bytes()


def _untimed(other: exact.Collection, found: exact.Collection) -> tuple[KnownInput, ...]:
    """Return the other's inputs with the times of these: times differ from call to call."""
    pairs = zip(other.inputs, found.inputs, strict=True)
    return tuple(replace(known, seconds=timed.seconds) for known, timed in pairs)


def test_another_seed_is_refused(tmp_path: Path) -> None:
    collect_exact_inputs(setting_of(tmp_path), {2: 1})
    with pytest.raises(DatasetMismatchError, match="seed: 0 in the directory, 1 requested"):
        collect_exact_inputs(setting_of(tmp_path, seed=1), {2: 1})


def test_other_grammars_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect_exact_inputs(setting_of(tmp_path), {2: 1})
    other = Stream(samples(), {"seed": 0, "grammar digest": "h"})
    monkeypatch.setattr(exact, "stream", lambda system, seed: other)
    with pytest.raises(
        DatasetMismatchError, match="grammar digest: 'g' in the directory, 'h' requested"
    ):
        collect_exact_inputs(setting_of(tmp_path), {2: 1})


def test_what_is_damaged_is_executed_again(tmp_path: Path) -> None:
    setting = setting_of(tmp_path)
    first = collect_exact_inputs(setting, {2: 3})
    journal = setting.data / "exact" / JOURNAL
    plan, one, two, three = journal.read_bytes().splitlines(keepends=True)
    assert b'"differs":"' in two
    journal.write_bytes(plan + one + two.replace(b'"differs":"', b'"differs":"A') + b"x\n" + three)
    before = executed_by(setting)
    assert collect_exact_inputs(setting, {2: 3}).inputs == _untimed(
        first, collect_exact_inputs(setting, {2: 3})
    )
    assert executed_by(setting) == before + 1


@pytest.mark.parametrize("line", [b"nonsense", b"[]", b'["touch", ""]'])
@pytest.mark.parametrize("place", ["plan", "entry"])
def test_a_journal_that_is_none_is_named(tmp_path: Path, line: bytes, place: str) -> None:
    collect_exact_inputs(setting_of(tmp_path), {2: 1})
    journal = tmp_path / "data" / "exact" / JOURNAL
    there = b"" if place == "plan" else journal.read_bytes()
    journal.write_bytes(there + checksummed(line) + b"\n")
    with pytest.raises(DatasetCorruptError, match=JOURNAL):
        collect_exact_inputs(setting_of(tmp_path), {2: 1})


def test_a_journal_of_another_release_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "data" / "exact" / JOURNAL
    journal.parent.mkdir(parents=True)
    lines = {"format": "shioenv-exact", "seed": 0}, {"number": 3, "passed": "slow"}
    journal.write_bytes(b"".join(checksummed(json.dumps(line).encode()) + b"\n" for line in lines))
    with pytest.raises(DatasetMismatchError, match="'shioenv-exact' in the directory, 'shioenv"):
        collect_exact_inputs(setting_of(tmp_path), {2: 1})


def test_an_entry_with_an_input_that_is_none_is_named(tmp_path: Path) -> None:
    collect_exact_inputs(setting_of(tmp_path), {2: 1})
    journal = tmp_path / "data" / "exact" / JOURNAL
    plan, one = journal.read_bytes().splitlines()
    entry = json.loads(sound(one) or b"")
    entry["input_args"].append("")
    journal.write_bytes(plan + b"\n" + checksummed(json.dumps(entry).encode()) + b"\n")
    with pytest.raises(DatasetCorruptError, match=JOURNAL):
        collect_exact_inputs(setting_of(tmp_path), {2: 1})


def test_a_full_disk_is_told_and_the_directory_is_free_again(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))
    try:
        with pytest.raises(DatasetStorageError, match=JOURNAL):
            collect_exact_inputs(setting_of(tmp_path), {2: 50})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(collect_exact_inputs(setting_of(tmp_path), {2: 50}).inputs) == 50
