"""Released records are imported unchanged; missing and wrong values are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.repair import repair
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import replay, verify
from shioenv.domain.record import Record, ScoredSegment
from shioenv.errors import ImportFileError, OutputExistsError, RepairError, UsageError
from shioenv_eval.export import card
from shioenv_eval.report.statistics import statistics
from shioenv_paper.released import ImportedRelease, import_released


def row(*arguments: str, score: float = 0.0, **changes: Any) -> dict[str, Any]:
    text = " ".join(arguments)
    for mark in ("<ns> <ns>", "<ns>"):
        text = text.replace(mark, "")
    return {
        "input": text,
        "input_args": list(arguments),
        "output": "",
        "exit_code": 0,
        "redundancy_score": score,
        "context_patch": "[]",
        "session_id": 5,
        **changes,
    }


def imported(tmp_path: Path, *rows: Any) -> tuple[ImportedRelease, list[Record]]:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
    (tmp_path / "rows.ndjson").write_bytes("".join(f"{line}\r\n" for line in lines).encode())
    done = import_released(tmp_path / "rows.ndjson", tmp_path / "dataset")
    report = verify(tmp_path / "dataset")
    assert report.ok, report.problems
    return done, list(read_records(tmp_path / "dataset"))


def test_what_is_known_is_kept_and_what_is_not_is_empty(tmp_path: Path) -> None:
    patch = '[["=","/fs/b/time","10:00"],["a","/fs/a",{"size":0}]]'
    _, (one,) = imported(
        tmp_path, row("touch", "-a<ns>", "b a", output="x\n", exit_code=1, context_patch=patch)
    )
    assert one.input == "touch -a b a"
    assert one.input_args == ["touch", "-a<ns>", "b a"]
    assert (one.output, one.exit_code, one.session_id) == ("x\n", 1, 0)
    assert json.loads(one.context_patch) == [
        ["a", "/fs/a", {"size": 0}],
        ["=", "/fs/b/time", "10:00"],
    ]
    assert one.segments == [ScoredSegment(command="touch", n_arguments=2)]
    unknown = (one.irreducibility, one.standard_error, one.stdout, one.stderr, one.output_b64)
    assert unknown == (None,) * 5
    assert (one.cwd, one.system, one.n_executions, one.content_digests) == ("", "", 0, [])
    assert one.sampler == "released"


@pytest.mark.parametrize(
    ("arguments", "smoothed", "score"),
    [
        (["touch", "-c<ns>", "a"], 2 / 3, 0.5),
        (["touch", "-c<ns>", "a"], 1 / 3, 0.0),
        (["touch", "-c<ns>", "a"], 1.0, 1.0),
        (["ls", "a", "b", "c", "d", "e"], 53 / 76, 52 / 75),
        (["wget", "-B<ns>", "a b", "c", "d", ">>", "f"], 14 / 30, 12 / 28),
        (["dir", "a", "|", "tee", "b", "c"], 0.5, 0.0),
        (["arp", "a", "b", "c", "d", "e", "f", "g", "h", "i"], 0.123, 0.123),
        (["touch", "a"], 1.0, None),
        (["uname"], 0.0, None),
        (["find", ".", "-name", "x"], 0.0, None),
    ],
)
def test_the_smoothing_is_taken_out_of_scores(
    tmp_path: Path, arguments: list[str], smoothed: float, score: float | None
) -> None:
    _, (one,) = imported(tmp_path, row(*arguments, score=smoothed))
    assert one.irreducibility == (None if score is None else pytest.approx(score))


def test_the_papers_own_layout_is_read_too(tmp_path: Path) -> None:
    line = row("ls", "-a", input="cd /home/ubuntu; ls -a", irreducibility=0.25)
    del line["redundancy_score"]
    _, (one,) = imported(tmp_path, line)
    assert (one.input, one.cwd, one.irreducibility) == (
        "cd /home/ubuntu; ls -a",
        "/home/ubuntu",
        0.25,
    )


@pytest.mark.parametrize("value", ['["ls", "-a"]', "['ls', '-a']"])
def test_arguments_may_be_a_text_that_holds_a_list(tmp_path: Path, value: str) -> None:
    _, (one,) = imported(tmp_path, row("ls", "-a", input_args=value))
    assert one.input_args == ["ls", "-a"]


@pytest.mark.parametrize("value", [["echo", '"a', 'b"'], "echo", None])
def test_arguments_that_are_not_the_input_are_found_anew(tmp_path: Path, value: Any) -> None:
    line = row("x", input='echo "a  b"', input_args=value, score=0.5)
    done, (one,) = imported(tmp_path, line)
    assert (one.input, one.input_args) == ('echo "a  b"', ["echo", '"a  b"'])
    assert one.irreducibility is None
    assert done.reparsed == 1


def test_what_cannot_be_taken_is_told_with_its_line(tmp_path: Path) -> None:
    done, records = imported(
        tmp_path,
        row("ls", "-a"),
        "{",
        "[1]",
        row("ls", "-b", exit_code="0"),
        row("ls", "-c", exit_code=300),
        row("ls", "-d", output=None),
        row("ls", "-e", context_patch='[["t","/x",1]]'),
        row("ls", "-a"),
        row("ls", "-f", score=7),
        "",
        row("ls", "-g", output="ls: invalid option -- 'g'"),
    )
    assert [record.input for record in records] == ["ls -a", "ls -g"]
    assert [one.line for one in done.rejected] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert done.doubtful == 1
    kept = (tmp_path / "dataset/rejected.ndjson").read_text().splitlines()
    assert json.loads(kept[0]) == {
        "line": 2,
        "text": "{",
        "reason": "not JSON",
        "file": "rows.ndjson",
    }
    origin = read_manifest(tmp_path / "dataset").plan.origin
    assert origin is not None
    assert sum(origin["rejected"].values()) == 8
    assert sum(done.to_json()["rejected"].values()) == 8


@pytest.mark.parametrize(
    ("text", "cwd", "kept"),
    [
        ("cd /a; ls -b", "/a", "cd /a; ls -b"),
        ("cd '/my dir'; ls -b", "/my dir", "cd '/my dir'; ls -b"),
        ("""cd '/it'"'"'s here'; ls -b""", "/it's here", """cd '/it'"'"'s here'; ls -b"""),
        ("cd ~; ls -b", "", "cd ~ ; ls -b"),
        ("cd $HOME/a; ls -b", "", "cd $HOME/a ; ls -b"),
        ("cd my\\ dir; ls -b", "", "cd my\\ dir ; ls -b"),
        ("cd dir\\; ls -b", "", "cd dir\\; ls -b"),
        ("cd it's; ls -b", "", "cd it's; ls -b"),
        ("cd ''; ls -b", "", "cd '' ; ls -b"),
        ("cd /a;", "", "cd /a"),
        ("cd /a; cd b", "/a", "cd /a; cd b"),
    ],
)
def test_a_start_directory_is_taken_off_where_it_can_be_put_on_again(
    tmp_path: Path, text: str, cwd: str, kept: str
) -> None:
    tokens = ("cd", "b") if text.endswith("cd b") else ("ls", "-b")
    _, (one,) = imported(tmp_path, row(*tokens, input=text, score=0.5))
    assert (one.cwd, one.input) == (cwd, kept)


def test_where_the_input_itself_is_a_cd_its_arguments_tell_it_from_the_start(
    tmp_path: Path,
) -> None:
    _, (first, second, third) = imported(
        tmp_path,
        row("cd", "-P", "b", input="cd /a; cd -P b", score=0.5),
        row("cd", "/a", ";", "cd", "-P", "c", input="cd /a; cd -P c", score=0.5),
        row("cd", "/a", "&&", "ls", score=0.5),
    )
    assert (first.cwd, first.input_args) == ("/a", ["cd", "-P", "b"])
    assert (second.cwd, third.cwd) == ("", "")
    assert third.input == "cd /a && ls"
    assert first.irreducibility is not None


def test_lines_beyond_what_can_be_computed_are_left_out(tmp_path: Path) -> None:
    arguments = ["echo", *(f"a{number}" for number in range(1100))]
    done, records = imported(
        tmp_path,
        row(*arguments, score=0.5),
        '{"input": ' + "[" * 100_000 + "]" * 100_000 + "}",
        row("ls", "-a", context_patch="[" * 100_000),
        row("ls", "-b"),
    )
    assert [record.input for record in records] == ["ls -b"]
    assert [(one.line, one.reason) for one in done.rejected] == [
        (1, "too many arguments for a score"),
        (2, "nested too deeply"),
        (3, "not a context patch: nested too deeply"),
    ]


def test_a_directory_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in (0, 2, 10):
        (source / f"{number}-data.ndjson").write_text(json.dumps(row("echo", f"n{number}")))
    (source / "README.md").write_text("not this")
    import_released(source, tmp_path / "dataset", sampler="gcs-released")
    records = list(read_records(tmp_path / "dataset"))
    assert [one.input for one in records] == ["echo n0", "echo n2", "echo n10"]
    assert {one.sampler for one in records} == {"gcs-released"}


def test_other_tools_know_what_it_is(tmp_path: Path) -> None:
    imported(tmp_path, row("ls", "a", "b", score=2 / 3), row("ls", "a", "c", score=1.0))
    dataset = tmp_path / "dataset"
    assert statistics(dataset).irreducibility.scored == 2
    made = select(dataset, tmp_path / "high", Selection(min_irreducibility=0.6))
    assert (made.records, verify(tmp_path / "high").problems) == (1, ())
    assert "without being executed again" in card({"train": made}, "mit")
    assert "| seed | unknown |" in card({"train": made}, "mit")
    with pytest.raises(UsageError, match="another program"):
        replay(dataset, 1)
    (dataset / "data/00000.ndjson").unlink()
    with pytest.raises(RepairError) as caught:
        repair(dataset)
    assert "--format released" in str(caught.value.hint)


def test_nothing_to_import_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.ndjson").write_text("ls -a\n")
    with pytest.raises(ImportFileError, match="1 lines: not JSON"):
        import_released(tmp_path / "rows.ndjson", tmp_path / "dataset")
    with pytest.raises(ImportFileError, match="cannot be read: No such file"):
        import_released(tmp_path / "none", tmp_path / "dataset")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportFileError, match="has no file"):
        import_released(tmp_path / "empty", tmp_path / "dataset")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "rows.ndjson"]
    (tmp_path / "rows.ndjson").write_text(json.dumps(row("ls")))
    with pytest.raises(OutputExistsError):
        import_released(tmp_path / "rows.ndjson", tmp_path / "rows.ndjson")


def test_a_digit_that_is_no_number_may_stand_in_a_files_name(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    for name in ("x10.json", "x9.json", "x1²2.json"):
        (rows / name).write_text(json.dumps(row("ls", name)))
    import_released(rows, tmp_path / "dataset")
    assert len(list(read_records(tmp_path / "dataset"))) == 3
