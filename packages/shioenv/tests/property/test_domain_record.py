import json

from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.names import name_bytes, name_text
from shioenv.domain.record import (
    NAMES,
    ContentDigest,
    Record,
    ScoredSegment,
    behavior_fields,
    decode,
    encode,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.builds(Behavior, st.integers(0, 255), st.binary()), TEXT, st.floats(0, 1) | st.none())
def test_decode_undoes_encode(behavior: Behavior, text: str, score: float | None) -> None:
    record = Record(
        session_id=0,
        input=text,
        input_args=[text],
        irreducibility=score,
        **behavior_fields(behavior),
    )
    line = encode(record)
    assert line.count(b"\n") == 1
    assert decode(line) == record
    assert decode(line).output_bytes == behavior.output


@given(st.lists(st.floats(-1e18, 1e18) | st.none(), min_size=4, max_size=4), TEXT)
def test_a_line_is_what_python_writes(scores: list[float | None], text: str) -> None:
    first, second, third, fourth = scores
    segment = ScoredSegment(command=text, n_arguments=1, irreducibility=second)
    document = {
        **dict.fromkeys(NAMES, False), "session_id": 3, "input": text, "input_args": [text],
        "exit_code": 0, "output": text, "context_patch": "[]", "irreducibility": first,
        "irreducibility_strict": third, "necessary": first, "standard_error": fourth,
        "n_arguments": 0, "n_executions": 0, "noise_threshold": fourth,
        "segments": [
            {"command": text, "n_arguments": 1, "executed": None, "irreducibility": second}
        ],
        "stdout": None, "stderr": text, "output_b64": None,
        "content_digests": [{"name": text, "sha256": text}],
        "limits_hit": [text], "cwd": text, "system": text, "sampler": text, "mistake": text,
        "history": [text, text],
        "schema_version": 6,
    }  # fmt: skip
    digests = [ContentDigest(name=text, sha256=text)]
    objects = {"segments": [segment], "content_digests": digests}
    record = Record(**{**document, **objects})  # type: ignore[arg-type]
    line = json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"
    assert encode(record).decode() == line
    assert encode(decode(line)).decode() == line


@given(st.binary(), st.binary())
def test_file_names_are_written_reversibly(a: bytes, b: bytes) -> None:
    assert name_bytes(name_text(a)) == a
    assert (name_text(a) == name_text(b)) == (a == b)
