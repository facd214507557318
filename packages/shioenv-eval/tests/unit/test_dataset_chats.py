"""Datasets are exported as conversations, and compressed ones like others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shioenv.domain.record import Record
from shioenv.errors import UsageError
from shioenv.files.compressed import unpacking
from shioenv_eval.export import chats, export
from support.dataset_fakes import HOME, alike, make, plan


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chats") / "dataset"
    make(directory, 336, stream=alike())
    return directory


def unpacked(path: Path) -> bytes:
    with unpacking(path) as stream:
        return stream.read()


def record(text: str, *history: str) -> Record:
    return Record(
        session_id=0,
        input=f"cd {HOME}; {text}",
        input_args=[],
        context_patch="[]",
        irreducibility=None,
        cwd=HOME,
        history=list(history),
        output=f"{text}!\n",
        exit_code=1,
    )


def test_inputs_of_one_shell_are_one_conversation() -> None:
    records = [
        record("a"), record("b", "a"), record("c", "a", "b"), record("d"), record("f", "d", "e"),
    ]  # fmt: skip
    told = [json.loads(line) for line in chats(records)]
    turns = [[turn["content"] for turn in one["messages"][1:]] for one in told]
    assert turns == [["a", "a!\n", "b", "b!\n", "c", "c!\n"], ["d", "d!\n"], ["f", "f!\n"]]
    roles = [turn["role"] for turn in told[0]["messages"]]
    assert roles == ["system", *["user", "assistant"] * 3]
    assert HOME in told[0]["messages"][0]["content"]
    assert told[2]["messages"][0]["content"].endswith("were typed before:\nd\ne")
    assert told[0]["exit_codes"] == [1, 1, 1]


def test_a_chat_is_exported_whole(dataset: Path, tmp_path: Path) -> None:
    done = export(dataset, tmp_path / "chat.jsonl", format="chat")
    lines = (tmp_path / "chat.jsonl").read_bytes().splitlines()
    assert len(lines) == done.records == 336
    export(dataset, tmp_path / "chat.jsonl.zst", format="chat")
    assert unpacked(tmp_path / "chat.jsonl.zst") == (tmp_path / "chat.jsonl").read_bytes()
    for name in ("chat.parquet", "chat.txt", "chat"):
        with pytest.raises(UsageError, match="extension"):
            export(dataset, tmp_path / name, format="chat")


def test_a_compressed_dataset_is_exported_like_a_plain_one(dataset: Path, tmp_path: Path) -> None:
    make(tmp_path / "packed", 336, stream=alike(), asked=replace(plan(), compression="zstd"))
    export(tmp_path / "packed", tmp_path / "packed.jsonl")
    export(dataset, tmp_path / "plain.jsonl")
    assert (tmp_path / "packed.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()
