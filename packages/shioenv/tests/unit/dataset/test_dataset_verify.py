"""Every kind of damage is reported with its file and line."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.dataset.record_reader import count_unfinished, read_records
from shioenv.dataset.store import Store
from shioenv.dataset.verify import record_problems, replay, verify
from shioenv.domain.record import ContentDigest, Effect, Record, ScoredSegment, encode
from shioenv.errors import (
    DatasetCorruptError,
    DatasetMismatchError,
    UnknownDatasetError,
    UsageError,
)
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.effort import Line
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import Limits
from shioenv.seeding import generator
from shioenv.synthesis.traces import Sample
from support.dataset_fakes import (
    HOME,
    FakeRunner,
    contents,
    keep_contexts,
    open_fake,
    plan,
    sample,
    shards_of,
)

STREAM = [
    sample("echo", "n0"),
    sample("touch", "n1", "a", "useless", "bytes"),
    sample("echo"),
    sample("echo", "n3", "-l<ns>", "<ns>a", "b", "c", "d"),
    sample("echo", "n4", "a", "&&", "ls", "useless", "x"),
    sample("touch", "n5", "|", "grep", "-q", "a", ">", "out.txt"),
]


def record_of(
    one: Sample, number: int, runner: FakeRunner, budget: int, rng: Random, **how: Any
) -> Record:
    recorder = SessionRecorder(scoring=Scoring(budget=budget), **how)
    recorded = recorder.record(one.session, runner, rng, volatile=one.volatile)
    return recorded.record(number, system="fake", sampler="gcs")


def made(number: int, one: Sample, **changes: Any) -> Record:
    rng = generator(plan().drawing.seed, "score", number)
    return replace(record_of(one, number, FakeRunner("/nonexistent"), 8, rng), **changes)


def write(directory: Path, records: list[Record]) -> Path:
    with Store(directory, plan(), len(records), kernel="6.1.0") as store:
        keep_contexts(store)
        for number, one in enumerate(records):
            store.accept(number, one.input, one.input_args)
            store.append(Line(number, encode(one), one.volatile, one.n_executions))
    return directory


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return [made(number, one) for number, one in enumerate(STREAM)]


def test_a_sound_dataset_has_no_problem(tmp_path: Path, records: list[Record]) -> None:
    told: list[tuple[int, int]] = []
    report = verify(write(tmp_path, records), report=lambda *done: told.append(done))
    assert report.ok, report.problems
    assert (report.records, report.shards) == (6, 1)
    assert told[-1] == (6, 6)
    assert report.to_json()["ok"] is True


def digest(name: str, sha256: str = "0" * 64) -> ContentDigest:
    return ContentDigest(name=name, sha256=sha256)


def effect(**changes: Any) -> Effect:
    return replace(Effect(leave_one_out=True, channel="output", contribution=1.0), **changes)


def with_effects(*effects: Effect) -> dict[str, Any]:
    return {"segments": [replace(made(0, STREAM[0]).segments[0], arguments=list(effects))]}


CHANGES: list[tuple[int, dict[str, Any], str]] = [
    (0, {"session_id": 4}, "session_id is 4, expected 0"),
    (
        0,
        {"input": "cd /home/ubuntu; echo n1"},
        "but 'cd /home/ubuntu; echo n0' by input_args and cwd",
    ),
    (0, {"exit_code": 256}, "exit_code is 256"),
    (0, {"timed_out": True}, "timed_out requires exit_code 124 and volatile"),
    (0, {"timed_out": True}, "timed_out is True, but limits_hit is []"),
    (0, {"limits_hit": ["wall_seconds"]}, "timed_out is False, but limits_hit is ['wall_seconds']"),
    (0, {"limits_hit": ["output_bytes"]}, "output_truncated is False, but limits_hit is"),
    (0, {"output_truncated": True}, "output_truncated is True, but limits_hit is []"),
    (0, {"limits_hit": ["patience"]}, "limits_hit has the unknown limit 'patience'"),
    (0, {"limits_hit": ["disk_bytes", "cpu_seconds"]}, "duplicate names or wrong order"),
    (0, {"limits_hit": ["disk_bytes", "disk_bytes"]}, "duplicate names or wrong order"),
    (0, {"limits_hit": ["drain_bytes"]}, "drain_bytes without output_bytes"),
    (0, {"context_patch": "[[]]"}, "context_patch:"),
    (0, {"context_patch": "[ ]"}, "context_patch is not in canonical order or form"),
    (0, {"output_b64": "?"}, "output_b64 is not base64"),
    (1, {"output": "x"}, "output differs from the decoded output_b64"),
    (0, {"stdout": None}, "stdout or stderr is missing"),
    (0, {"content_digests": [digest("a", "b")]}, "invalid SHA-256"),
    (0, {"content_digests": [digest("b"), digest("a")]}, "content_digests are not sorted"),
    (0, {"content_digests": [digest("a"), digest("a")]}, "have a duplicate name"),
    (0, {"irreducibility": None}, "irreducibility is (None"),
    (0, {"irreducibility": 1.5, "irreducibility_strict": 2.0}, "not 0 to 1"),
    (1, {"irreducibility": 0.25}, "by its segments"),
    (1, {"irreducibility_strict": 0.0}, "irreducibility_strict is 0.0"),
    (0, {"necessary": 0.0}, "necessary is 0.0, but 1.0 by its leave-one-outs"),
    (0, {"necessary": None}, "necessary is None, but 1.0 by its leave-one-outs"),
    (
        0,
        {"segments": [replace(made(0, STREAM[0]).segments[0], necessary=0.5)]},
        "segments[0]: necessary is 0.5",
    ),
    (0, {"noise_threshold": 0.99}, "noise_threshold is 0.99"),
    (0, {"n_executions": 0}, "n_executions is 0"),
    (0, {"n_arguments": 2}, "n_arguments is 2, but input_args has 1 removable"),
    (0, {"segments": []}, "segments are [], but [('echo', 1)] by input_args"),
    (0, {"segments": [ScoredSegment(command="echo", n_arguments=1)]}, "not every segment has"),
    (0, with_effects(), "segments[0] does not have one effect per argument"),
    (0, with_effects(effect(channel=None)), "segments[0] has an invalid effect"),
    (0, with_effects(effect(channel="smell")), "segments[0] has an invalid effect"),
    (0, with_effects(effect(leave_one_out=False)), "segments[0] has an invalid effect"),
    (0, with_effects(effect(contribution=1.5)), "segments[0] has an invalid effect"),
    (0, {"exact": False}, "exact is False: 1 arguments, budget 8"),
    (0, {"standard_error": 0.5}, "exact, but standard_error is 0.5"),
    (0, {"sampler": "ucs"}, "sampler and system are ucs on fake, but gcs on fake in the manifest"),
    (0, {"cwd": "/tmp"}, "cwd is '/tmp', not a start directory"),
    (3, {"input": "cd /home/ubuntu; echo n0"}, "input is a duplicate of record 0"),
]


@pytest.mark.parametrize(("number", "change", "message"), CHANGES)
def test_every_contradiction_is_named_with_file_and_line(
    tmp_path: Path, records: list[Record], number: int, change: dict[str, Any], message: str
) -> None:
    changed = list(records)
    content = encode(replace(changed[number], **change))
    write(tmp_path, changed)
    lines = (tmp_path / "data/00000.ndjson").read_bytes().splitlines(keepends=True)
    lines[number] = content
    (tmp_path / "data/00000.ndjson").write_bytes(b"".join(lines))
    report = verify(tmp_path)
    assert not report.ok
    found = [str(one) for one in report.problems if one.line == number + 1]
    assert any(message in one for one in found), found
    assert found[0].startswith(f"data/00000.ndjson:{number + 1}: ")
    assert any("sha256 is" in one.message for one in report.problems)


def test_many_duplicates_are_one_problem_that_names_the_first_original(
    tmp_path: Path, records: list[Record]
) -> None:
    again = [*records, records[1], records[0], records[1]]
    numbered = [replace(one, session_id=number) for number, one in enumerate(again)]
    report = verify(write(tmp_path, numbered))
    (problem,) = [one for one in report.problems if "duplicate" in one.message]
    assert problem.message == "input is a duplicate of record 1"
    assert (problem.line, problem.count) == (len(records) + 1, 3)


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ('"irreducibility":1.0', '"irreducibility":NaN', "NaN is not a finite number"),
        ('"contribution":1.0', '"contribution":1e999', "1e999 is not a finite number"),
        (
            '"contribution":1.0',
            '"contribution":1e300',
            "at $.segments[0].arguments[0].con",
        ),
        ('"leave_one_out":true', '"leave_one_out":1', "expected bool or null, got int - at $.segm"),
        (
            '"arguments":[{',
            '"arguments":[{},{',
            "required field leave_one_out - at $.segments[0].argu",
        ),
        (
            '"arguments":[',
            '"arguments":null,"_":[',
            "expected array, got null - at $.segm",
        ),
        ('"context_patch":"[]"', f'"context_patch":"{"[" * 100_000}"', "context_patch: not a"),
        ('{"session_id"', "[" * 100_000 + '{"session_id"', "not a record: "),
        ('"n_arguments":1', f'"n_arguments":{"9" * 400}', "exceeds 64 bits"),
        (
            '"n_arguments":1,"n_ex',
            '"n_arguments":1000000000000,"n_ex',
            "n_arguments is 1000000000000",
        ),
    ],
)
def test_numbers_and_depths_beyond_all_measure_are_problems_of_their_line(
    tmp_path: Path, records: list[Record], was: str, now: str, message: str
) -> None:
    shard = write(tmp_path, records) / "data/00000.ndjson"
    content = shard.read_text()
    assert was in content
    shard.write_text(content.replace(was, now, 1).replace('"exit_code":', '"exit_code":99'))
    report = verify(tmp_path)
    assert report.records == 6
    assert any(message in one.message for one in report.problems if one.line == 1)
    assert any("exit_code is 99" in one.message and one.count > 3 for one in report.problems)


def test_what_many_records_share_is_one_problem(tmp_path: Path, records: list[Record]) -> None:
    write(tmp_path, records)
    edit(tmp_path, lambda m: m["system"].update(name="other"))
    (found,) = verify(tmp_path).problems
    assert (found.count, found.line, found.last) == (6, 1, "data/00000.ndjson:6")
    assert str(found) == (
        "data/00000.ndjson:1: sampler and system are gcs on fake, but gcs on other in the manifest "
        "(and 5 more of this kind, the last at data/00000.ndjson:6)"
    )
    shard = tmp_path / "data/00000.ndjson"
    shard.write_bytes(b"".join(shard.read_bytes().splitlines(keepends=True)[1:]))
    problems = {one.message: one.count for one in verify(tmp_path).problems}
    assert problems["session_id is 1, expected 0"] == 5
    assert verify(tmp_path).to_json()["problems"][0]["count"] == 5


def test_a_record_that_reached_limits_is_sound(records: list[Record]) -> None:
    for names in (["cpu_seconds"], ["memory_bytes", "processes", "disk_bytes"], ["disk_inodes"]):
        assert list(record_problems(replace(records[0], limits_hit=names))) == []
    names = ["output_bytes", "drain_bytes"]
    flooded = replace(records[0], output_truncated=True, limits_hit=names)
    assert list(record_problems(flooded)) == []


def test_a_truncated_output_of_an_earlier_version_has_no_channels(records: list[Record]) -> None:
    cut = replace(records[0], output_truncated=True, limits_hit=["output_bytes"])
    assert list(record_problems(replace(cut, stdout=None, stderr=None))) == []
    assert list(record_problems(replace(cut, stdout=None))) == ["stdout or stderr is missing"]


def test_a_record_tells_the_effect_of_each_argument(records: list[Record]) -> None:
    effects: Any = [segment.arguments for segment in records[4].segments]
    alone = [[one.leave_one_out for one in segment] for segment in effects]
    assert alone == [[True, True], [False, True]]
    assert effects[1][0].channel is None
    assert effects[1][1].channel in {"exit_code", "output"}
    assert effects[1][0].contribution < effects[1][1].contribution


def test_record_problems_needs_no_dataset(records: list[Record]) -> None:
    assert [list(record_problems(one)) for one in records] == [[] for _ in records]


def damage(change: Callable[[Path], object]) -> Callable[[Path], object]:
    return change


def cut(directory: Path) -> None:
    shard = directory / "data/00000.ndjson"
    shard.write_bytes(shard.read_bytes()[:-30])


def edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "manifest.json"
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut, "data/00000.ndjson:6: not a record"),
        (lambda d: (d / "data/00000.ndjson").unlink(), "data/00000.ndjson: cannot be read"),
        (lambda d: (d / "data/00007.ndjson").touch(), "00007.ndjson: is not in the manifest"),
        (lambda d: (d / "data/00000.journal").touch(), "data/00000.journal: unfinished journal"),
        (lambda d: edit(d, lambda m: m.update(count=9)), "not finished: 6 of 9 records"),
        (lambda d: edit(d, lambda m: m["shards"][0].update(records=5)), "records is 6, but 5 in"),
        (lambda d: edit(d, lambda m: m["shards"][0].update(volatile=5)), "volatile is 0, but 5 in"),
        (lambda d: edit(d, lambda m: m["shards"][0].update(file="x")), "manifest.json: "),
        (lambda d: (d / "manifest.json").write_text("{"), "manifest.json: "),
        (lambda d: (d / "manifest.json").write_text("[" * 100_000), "manifest.json: "),
    ],
)
def test_damaged_files_are_named(
    tmp_path: Path, records: list[Record], change: Callable[[Path], object], message: str
) -> None:
    change(write(tmp_path, records))
    problems = [str(one) for one in verify(tmp_path).problems]
    assert any(message in one for one in problems), problems


def test_verify_asks_for_a_dataset(tmp_path: Path) -> None:
    with pytest.raises(UnknownDatasetError):
        verify(tmp_path)


def test_replay_executes_again_and_compares(tmp_path: Path, records: list[Record]) -> None:
    write(tmp_path, records)
    same = replay(tmp_path, 100, opener=open_fake)
    assert same.ok
    assert same.replayed == 6
    other = [records[0], replace(records[1], output="x", output_b64=None), *records[2:]]
    write(tmp_path / "other", other)
    again = replay(tmp_path / "other", 6, opener=open_fake)
    assert not again.ok
    (differing,) = again.differing
    assert (differing.session_id, differing.fields) == (1, ("output", "output_b64"))
    assert again.to_json()["differing"][0]["input"].startswith("cd /home/ubuntu; touch n1")


def test_nothing_is_asked_of_volatile_records(tmp_path: Path, records: list[Record]) -> None:
    changed = [replace(records[0], output="x", volatile=True), *records[1:]]
    found = replay(write(tmp_path, changed), 6, opener=open_fake)
    assert found.made_on.startswith("Linux ")
    assert found.here == f"Linux {platform.release()}", "nothing of files: a stand-in runs nothing"
    assert found.ok
    assert found.volatile == 1


def test_replay_wants_the_same_system(tmp_path: Path, records: list[Record]) -> None:
    write(tmp_path, records)
    edit(tmp_path, lambda document: document["system"].update(digest="other"))
    with pytest.raises(DatasetMismatchError, match=r"system.digest: other in the dataset"):
        replay(tmp_path, 1, opener=open_fake)
    with pytest.raises(UsageError):
        replay(tmp_path, 0, opener=open_fake)


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_a_replay_that_is_left_out_is_said_to_be(
    tmp_path: Path, records: list[Record], json_too: list[str]
) -> None:
    (write(tmp_path, records) / "data/x").touch()
    run = ["dataset", "verify", str(tmp_path), *json_too]
    assert "replayed" not in CliRunner().invoke(app, run).stderr
    result = CliRunner().invoke(app, [*run, "--replay", "3"])
    assert result.exit_code == 1
    assert "nothing was replayed, because the dataset has problems" in result.stderr


def test_arguments_are_shown_by_command_and_those_needed_by_name(
    tmp_path: Path, records: list[Record]
) -> None:
    command = ["dataset", "show", str(write(tmp_path, records)), "--count", "6"]
    shown = CliRunner().invoke(app, command).stdout
    assert "  arguments   none\n" in shown
    assert "  arguments   touch: n5; grep: -q, a\n" in shown
    assert "  arguments   echo: n4, a; ls: useless, x\n" in shown
    effects = [effect for part in records[4].segments for effect in part.arguments or ()]
    assert [effect.leave_one_out for effect in effects] == [True, True, False, True]
    assert "(3 of 4): n4, a, x\n" in shown


def test_an_unfinished_dataset_is_announced(tmp_path: Path, records: list[Record]) -> None:
    write(tmp_path, records)
    run = ["dataset", "show", str(tmp_path)]
    assert CliRunner().invoke(app, run).stderr == ""
    edit(tmp_path, lambda manifest: manifest.update(count=1009))
    result = CliRunner().invoke(app, run)
    assert result.exit_code == 0
    note = (
        f"{tmp_path} is not finished: 6 of its 1,009 records are used, those in finished shards\n"
    )
    assert result.stderr == note


@pytest.mark.parametrize("compression", [None, "zstd"])
@shards_of(100)
def test_what_a_stopped_run_has_finished_is_read(
    tmp_path: Path, records: list[Record], compression: str | None
) -> None:
    with Store(tmp_path, plan(compression=compression), 230, kernel="6.1.0") as store:
        keep_contexts(store)
        lines = {
            number: replace(records[0], session_id=number, input=f"cd {HOME}; echo {number}")
            for number in (*range(100), 210, 170, 101, 199)
        }
        for number in range(230):
            store.accept(number, f"cd {HOME}; echo {number}", records[0].input_args)
        for number, record in lines.items():
            store.append(Line(number, encode(record), False, 4))
    journal = tmp_path / "data/00001.journal"
    journal.write_bytes(journal.read_bytes() + b"00000000 {}\n" + b"torn")
    before = contents(tmp_path)

    found = [record.session_id for record in read_records(tmp_path, check=True, unfinished=True)]
    assert found == [*range(100), 101, 170, 199, 210]
    assert len([*read_records(tmp_path)]) == 100
    assert count_unfinished(tmp_path) == 4
    result = CliRunner().invoke(app, ["dataset", "show", str(tmp_path), "--id", "170"])
    assert result.exit_code == 0, result.output
    assert "104 of its 230 records are used, those in finished shards and in journals" in (
        result.stderr
    )
    shown = CliRunner().invoke(app, ["dataset", "show", str(tmp_path), "--count", "104"])
    assert shown.stdout.count("\nrecord ") == 103
    assert "100 of 230 records are in shards, 4 in journals" in str(verify(tmp_path).problems[0])
    assert contents(tmp_path) == before
    journal.unlink()
    journal.mkdir()
    with pytest.raises(DatasetCorruptError, match=r"00001\.journal cannot be read: Is a directory"):
        list(read_records(tmp_path, unfinished=True))


def test_every_execution_is_of_the_sessions_text_and_sub_inputs_run_once() -> None:
    observer = FakeRunner("/nonexistent")
    rng = generator(1, "score", 0)
    one = sample("echo", "a", "a", "b", "&&", "ls", "a", "a")
    found = record_of(one, 0, observer, 64, rng)
    assert all(text.startswith("echo") for text in observer.texts)
    full = "echo a a b && ls a a"
    assert found.input == f"cd /home/ubuntu; {full}"
    assert observer.texts.count(full) == 3  # noise runs, the last of them with two pipes
    others = [text for text in observer.texts if text != full]
    assert others.count("echo a a b") == 3  # the first segment's noise runs
    reduced = [text for text in others if text != "echo a a b"]
    assert len(reduced) == len(set(reduced))
    assert found.n_executions == 6 + len(reduced)
    assert found.stdout is not None


def test_a_shared_cache_saves_executions_and_changes_nothing() -> None:
    cache: dict[str, Any] = {}
    one, other = sample("echo", "a", "b", "c"), sample("echo", "a", "b", "d")
    plain = [
        record_of(one, 0, FakeRunner("/nonexistent"), 64, generator(1, "x")),
        record_of(other, 1, FakeRunner("/nonexistent"), 64, generator(2, "x")),
    ]
    first, second = FakeRunner("/nonexistent"), FakeRunner("/nonexistent")
    shared = [
        record_of(one, 0, first, 64, generator(1, "x"), cache=cache),
        record_of(other, 1, second, 64, generator(2, "x"), cache=cache),
    ]
    assert shared == plain
    assert len(second.texts) < len(first.texts)


def test_declared_volatile_inputs_are_recorded_so() -> None:
    one = dataclasses.replace(sample("echo", "a"), volatile=True)
    found = record_of(one, 0, FakeRunner("/nonexistent"), 8, generator(1))
    assert found.volatile


def test_opened_observers_know_their_system() -> None:
    assert open_fake("/nonexistent", Limits()).system.digest == plan().system_digest


def test_contexts_that_are_gone_changed_or_never_were_are_problems(
    tmp_path: Path, records: list[Record]
) -> None:
    directory = write(tmp_path / "a", records)
    path = directory / "contexts" / "00000.json"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"notes", b"other"))
    (changed,) = verify(directory).problems
    assert (changed.file, changed.message[:12]) == ("contexts/00000.json", "was changed:")
    path.unlink()
    (gone,) = verify(directory).problems
    assert gone.message == "cannot be read: No such file or directory"
    manifest = directory / "manifest.json"
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(document | {"contexts": []}))
    (missing,) = verify(directory).problems
    assert missing.message == f"has no context of {HOME}"


def test_a_patch_that_does_not_fit_its_context_is_a_problem(
    tmp_path: Path, records: list[Record]
) -> None:
    strange = replace(records[0], context_patch='[["r","/fs/nowhere"]]')
    directory = write(tmp_path / "a", [strange, *records[1:]])
    assert any("does not apply in" in problem.message for problem in verify(directory).problems)
