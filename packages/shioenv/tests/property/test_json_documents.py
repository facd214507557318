"""JSON printed by the command line is valid UTF-8, and preserves the bytes of every text."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shioenv.cli import run
from shioenv.cli.printing import json_bytes
from shioenv.domain.behavior import Behavior
from shioenv.domain.names import name_bytes, name_text

BYTES = st.binary(max_size=8) | st.sampled_from([b"caf\xe9", b"\xff", "ž".encode(), b"\\xff", b"a"])
TEXTS = BYTES.map(lambda content: content.decode("utf-8", "surrogateescape"))
"""Texts that Python decodes from arguments, paths and lines of files."""

VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(-9, 9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS.filter(lambda name: not name.endswith("_b64")), inner, max_size=3)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.sampled_from(["input", "words", "cwd", "parts"]), VALUES, max_size=4)


def given_back(printed: Any, encoded: Any = None) -> Any:
    """Return the value with its texts decoded from the printed bytes."""
    if isinstance(printed, str):
        content = printed.encode() if encoded is None else base64.b64decode(encoded)
        return content.decode("utf-8", "surrogateescape")
    if isinstance(printed, list):
        beside = encoded or [None] * len(printed)
        return [given_back(*each) for each in zip(printed, beside, strict=True)]
    if not isinstance(printed, dict):
        return printed
    return {
        name: given_back(member, printed.get(f"{name}_b64"))
        for name, member in printed.items()
        if not name.endswith("_b64")
    }


def named_as_printed(value: Any) -> Any:
    """Return the value with escaped member names, in each object where a name has bytes."""
    if isinstance(value, list):
        return list(map(named_as_printed, value))
    if not isinstance(value, dict):
        return value
    escaped = any(name != valid(name) for name in value)
    return {
        name_text(os.fsencode(name)) if escaped else name: named_as_printed(member)
        for name, member in value.items()
    }


def valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@given(DOCUMENTS, st.sampled_from([None, 2]))
def test_documents_are_valid_and_give_every_byte_back(
    document: dict[str, Any], indent: int | None
) -> None:
    printed = json_bytes(document, indent=indent)
    text = printed.decode("utf-8", "strict")
    found = json.loads(text)
    json.dumps(found, ensure_ascii=False).encode("utf-8", "strict")  # no half of a surrogate pair
    assert given_back(found) == named_as_printed(document)


@given(st.binary(max_size=12) | BYTES, st.binary(max_size=12))
def test_documents_of_commands_give_arguments_and_outputs_back(word: bytes, output: bytes) -> None:
    text = word.decode("utf-8", "surrogateescape")
    ran = run.document(text, text, "debian-12", Behavior(0, output))
    found = json.loads(json_bytes(ran).decode("utf-8", "strict"))
    json.dumps(found, ensure_ascii=False).encode("utf-8", "strict")
    shown = given_back(found)
    assert shown["input"] == text
    assert shown["output"].encode("utf-8", "surrogateescape") == output


@given(DOCUMENTS)
def test_a_valid_document_is_printed_as_it_is(document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False)
    try:
        expected = text.encode()
    except UnicodeEncodeError:
        return
    assert json_bytes(document) == expected


@given(BYTES, TEXTS)
def test_names_of_members_give_their_bytes_back(content: bytes, text: str) -> None:
    found = json.loads(json_bytes({os.fsdecode(content + b"\xff"): text}))
    assert name_bytes(next(iter(found))) == content + b"\xff"


def test_half_a_surrogate_pair_of_a_file_is_three_bytes() -> None:
    document = {
        "input": "a\ud800",
        "output": "\udc80\ud83d",
        "output_b64": None,
        "more": [["\ud83d"]],
    }
    found = json.loads(json_bytes(document))
    assert base64.b64decode(found["input_b64"]) == b"a\xed\xa0\x80"
    assert base64.b64decode(found["output_b64"]) == b"\xed\xb2\x80\xed\xa0\xbd"
    assert base64.b64decode(found["more_b64"][0][0]) == b"\xed\xa0\xbd"
    json.dumps(found, ensure_ascii=False).encode()


def test_bytes_that_are_there_already_stay() -> None:
    for document in (
        {"output": "\udcff", "output_b64": "AA=="},
        {"output_b64": "AA==", "output": "\udcff"},
    ):
        assert json.loads(json_bytes(document))["output_b64"] == "AA=="
