from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.names import name_bytes, name_text
from shioenv.domain.record import Record, behavior_fields, decode, encode

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


@given(st.binary(), st.binary())
def test_file_names_are_written_reversibly(a: bytes, b: bytes) -> None:
    assert name_bytes(name_text(a)) == a
    assert (name_text(a) == name_text(b)) == (a == b)
