import json
from typing import Any

import pytest
from msgspec.structs import replace

from shioenv.domain.behavior import Behavior
from shioenv.domain.names import name_bytes, name_text
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import NAMES, Record, ScoredSegment, behavior_fields, decode, encode
from shioenv.errors import RecordError

RECORD = Record(
    session_id=7,
    input="cd /home/ubuntu; ls -a",
    input_args=["ls", "-a"],
    irreducibility=1.0,
    cwd="/home/ubuntu",
    **behavior_fields(
        Behavior(0, b"caf\xc3\xa9\n", ContextPatch((("=", "/cwd", "/"),)), {"b": "1", "a": "0"})
    ),
)

PAPER = [
    "session_id",
    "input",
    "input_args",
    "exit_code",
    "output",
    "context_patch",
    "irreducibility",
]


def test_the_papers_fields_come_first_in_its_order() -> None:
    document = json.loads(encode(RECORD))
    assert list(document)[:7] == PAPER
    assert list(document) == list(NAMES)


def test_a_record_is_one_line_and_comes_back() -> None:
    line = encode(replace(RECORD, output="a\nb\u2028c\r"))
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert decode(line).output == "a\nb\u2028c\r"
    assert decode(encode(RECORD)) == RECORD


def test_equal_records_give_equal_bytes() -> None:
    told = {name: getattr(RECORD, name) for name in NAMES}
    digests = behavior_fields(Behavior(0, b"", content_digests={"a": "0", "b": "1"}))
    other = Record(**{**told, "content_digests": digests["content_digests"]})
    assert encode(other) == encode(RECORD)


def test_undecodable_output_keeps_its_bytes_beside_the_text() -> None:
    found = behavior_fields(Behavior(0, b"a\xffb"))
    assert (found["output"], found["output_b64"]) == ("a\ufffdb", "Yf9i")
    assert replace(RECORD, **found).output_bytes == b"a\xffb"


def test_output_that_really_holds_the_replacement_character_needs_no_bytes() -> None:
    assert behavior_fields(Behavior(0, "\ufffd".encode()))["output_b64"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"exit_code": "0"}, r"at \$.exit_code"),
        ({"exit_code": True}, r"at \$.exit_code"),
        ({"input_args": ["ls", 3]}, r"at \$.input_args\[1\]"),
        ({"schema_version": 1}, "schema version"),
        ({"limits_hit": [5]}, r"at \$.limits_hit\[0\]"),
        ({"exit_cod": 0}, "did you mean exit_code"),
        ({"segments": [{"command": "ls"}]}, r"required field n_arguments - at \$.segments\[0\]"),
        (
            {"segments": [{"command": "ls", "n_arguments": 1, "exakt": True}]},
            r"unknown field exakt - at \$.segments\[0\] \(SHIO-D13\)\n  did you mean exact",
        ),
        ({"irreducibility": "1"}, r"expected float or null, got str - at \$.irreducibility"),
        ({"content_digests": {"a": "1"}}, r"expected array, got object - at \$.content_digests"),
        (
            {"content_digests": {"a": 1}, "schema_version": 5},
            r"expected str, got int - at \$.content_digests",
        ),
        ({"content_digests": [{"name": "a"}]}, r"field sha256 - at \$.content_digests\[0\]"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(change: dict[str, object], message: str) -> None:
    document = {**json.loads(encode(RECORD)), **change}
    with pytest.raises(RecordError, match=message):
        decode(json.dumps(document))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "schema_version"])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    document = json.loads(encode(RECORD))
    del document[name]
    with pytest.raises(RecordError, match=f"a record has no field '{name}'"):
        decode(json.dumps(document))


def test_what_a_segment_does_not_hold_is_absent_from_the_line() -> None:
    record = replace(RECORD, segments=[ScoredSegment(command="ls", n_arguments=1)])
    assert b'"segments":[{"command":"ls","n_arguments":1,"executed":null}]' in encode(record)
    assert decode(encode(record)) == record


def of_version_3(**changes: Any) -> dict[str, Any]:
    """A record as an earlier release wrote it."""
    effects = [
        {"leave_one_out": known, "channel": "output" if known else None, "contribution": None}
        for known in (True, False, None)
    ]
    segment = {"command": "ls", "n_arguments": 2, "arguments": effects[:2]}
    document = {**of_version_5(), "schema_version": 3, "segments": [segment], **changes}
    del document["necessary"], document["mistake"], document["history"]
    return document


def of_version_5() -> dict[str, Any]:
    document = json.loads(encode(RECORD))
    digests = {one["name"]: one["sha256"] for one in document["content_digests"]}
    return {**document, "schema_version": 5, "content_digests": digests}


def test_a_record_of_version_5_has_its_digests_by_name_and_is_written_as_it_was() -> None:
    segment = {"command": "ls", "n_arguments": 1}
    line = written({**of_version_5(), "segments": [segment]})
    record = decode(line)
    assert record.content_digests == RECORD.content_digests
    assert record.behavior().content_digests == {"a": "0", "b": "1"}
    assert record.segments[0].executed is None
    assert encode(record) == line


def written(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def test_a_record_of_the_version_before_is_read_and_written_as_it_was() -> None:
    line = written(of_version_3())
    record = decode(line)
    assert encode(record) == line
    assert (record.necessary, record.segments[0].necessary) == (0.5, 0.5)


def test_a_record_of_version_4_has_no_mistake_and_no_history_and_is_written_as_it_was() -> None:
    document = {**of_version_5(), "schema_version": 4}
    del document["mistake"], document["history"]
    line = written(document)
    assert (decode(line).mistake, decode(line).history) == (None, [])
    assert decode(line).necessary == RECORD.necessary
    assert encode(decode(line)) == line
    with pytest.raises(RecordError, match="no field 'mistake'"):
        decode(written({**document, "schema_version": 5}))


def test_what_an_earlier_version_does_not_tell_is_not_known() -> None:
    released = {"command": "ls", "n_arguments": 1}
    unknown = {"leave_one_out": None, "channel": None, "contribution": None}
    for segments in ([], [released], [{**released, "arguments": [unknown]}]):
        record = decode(written(of_version_3(segments=segments)))
        assert record.necessary is None
        assert encode(record) == written(of_version_3(segments=segments))


def test_an_earlier_version_with_a_later_field_is_not_as_records_are_written() -> None:
    line = written({**of_version_3(), "necessary": 0.5})
    assert encode(decode(line)) != line


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"schema_version":3}', '{"schema_version":4}', b"\xff"]
)
def test_what_is_no_record_is_refused(line: str | bytes) -> None:
    with pytest.raises(RecordError):
        decode(line)


@pytest.mark.parametrize("name", ["irreducibility", "n_arguments", "segments"])
@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("NaN", "NaN is not a finite number"),
        ("-Infinity", "-Infinity is not a finite number"),
        ("1e999", "1e999 is not a finite number"),
        (str(2**63), "exceeds 64 bits"),
        ("9" * 400, "exceeds 64 bits"),
    ],
)
def test_numbers_that_nothing_can_count_with_are_refused(
    name: str, number: str, message: str
) -> None:
    document = {**json.loads(encode(RECORD)), name: [{"n": 0.5}] if name == "segments" else 0.5}
    with pytest.raises(RecordError, match=message):
        decode(json.dumps(document).replace("0.5", number))


def test_a_line_nested_too_deeply_is_no_record() -> None:
    with pytest.raises(RecordError, match="not a record"):
        decode("[" * 100_000)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(RecordError):
        encode(replace(RECORD, input="\udcff"))


@pytest.mark.parametrize("escape", [r"\ud800", r"\uDFFF", r"\udc00\ud800"])
@pytest.mark.parametrize("name", ["input", "output", "context_patch", "segments"])
def test_a_line_with_a_lone_surrogate_is_refused(name: str, escape: str) -> None:
    document = json.loads(encode(RECORD))
    document[name] = [{"command": "TEXT"}] if name == "segments" else "TEXT"
    line = json.dumps(document).replace("TEXT", escape)
    for one in (line, line.encode()):
        with pytest.raises(RecordError, match=r"not valid UTF-8: '\\ud"):
            decode(one)


def test_a_pair_of_surrogates_is_one_character() -> None:
    line = json.dumps({**json.loads(encode(RECORD)), "output": "\U0001f600 \\ud800"})
    assert decode(line).output == "\U0001f600 \\ud800"


@pytest.mark.parametrize("name", [b"a", b"\xff", b"\\xff", b"\\", "é".encode(), b"a\nb", b"\\\xff"])
def test_file_names_are_written_reversibly(name: bytes) -> None:
    assert name_bytes(name_text(name)) == name


def test_an_undecodable_name_is_told_from_one_that_spells_it() -> None:
    assert name_text(b"\xff") == r"\xff"
    assert name_text(b"\\xff") == r"\\xff"
