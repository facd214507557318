"""Damaged and malicious models: one error, which names the file."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import shutil
import signal
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.errors import Abstained, HostError, ModelError
from shioenv_model import files as packing
from shioenv_model.files import card_of, load_model, opened, pack, write_card
from shioenv_model.memory.index_writer import packed_members
from shioenv_model.memory.rank import FEATURES, PAIR, Ranker
from shioenv_model.memory.rewrite import Kept
from support import small_world
from support.nightly import LARGER, by_day, scaled
from support.small_world import small_memory

CARD = {
    "name": "small", "kind": "memory", "system": "debian-12", "system_digest": "5" * 64,
    "records": 15, "license": "none", "limits": "few", "version": "1", "learned": {"right": 1},
    "material": [{"records": 15, "policy": "people", "sampler": "gcs", "seed": 1}],
}  # fmt: skip
QUESTIONS = ("cat a.txt | wc -l", "ls other; rm -r other; touch new; ls", "cat gone", "cd sub; ls")
INDEX = ("index.json", "rows.npy", "frames.npy", "texts.bin", "behaviors.zst")
NEEDED = (*INDEX, "world.json")
JSON = ("index.json", "world.json", "model.json")
ARRAYS = ("rows.npy", "frames.npy")
MEMBERS = (*NEEDED, "model.json", "ranker.npz")
DEEP = b"[" * 100_000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def nobody_waits() -> Iterator[None]:
    """End a test that blocks on a pipe."""
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("whole") / "made"
    small_memory(made)
    write_card(made, CARD)
    ranker().save(made / "ranker.npz")
    return made


@pytest.fixture
def directory(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "made")


def ranker(**changed: Any) -> Ranker:
    trees = {
        "feature": np.array([[3, -1, -1]], dtype=np.int16),
        "threshold": np.array([[0.5, 0.0, 0.0]]),
        "left": np.array([[1, 0, 0]], dtype=np.int16),
        "right": np.array([[2, 0, 0]], dtype=np.int16),
        "value": np.array([[0.0, 1.0, -1.0]]),
        "start": np.array([0.0]),
    }
    of_trees = {name: value for name, value in changed.items() if name in trees}
    scores = changed.get("scores", np.array([0.0, 1.0]))
    shares = changed.get("shares", np.array([0.0, 1.0]))
    return Ranker(changed.get("weights", np.ones(len(PAIR))), trees | of_trees, scores, shares)


def asked(model: Path) -> None:
    """Open a model and ask it questions. Any damage must raise one kind of error."""
    router = load_model(model)
    for question in QUESTIONS:
        router.answer(question)


def refused(model: Path, member: str) -> str:
    with pytest.raises(ModelError) as told:
        asked(model)
    assert member in str(told.value)
    return told.value.message


def test_a_model_that_is_whole_answers(directory: Path, tmp_path: Path) -> None:
    asked(directory)
    pack(directory, tmp_path / "small.model")
    asked(tmp_path / "small.model")


# Any member ---------------------------------------------------------------------------------------


def other_kinds(path: Path) -> Iterator[Callable[[], None]]:
    yield lambda: os.mkfifo(path)
    yield lambda: path.symlink_to("/dev/zero")
    yield lambda: path.symlink_to(path)
    yield path.mkdir


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("kind", range(4))
def test_what_is_no_file_is_not_opened(directory: Path, member: str, kind: int) -> None:
    path = directory / member
    path.unlink()
    list(other_kinds(path))[kind]()
    refused(directory, member)


@pytest.mark.parametrize("member", [*NEEDED, "dictionary.bin"])
def test_what_is_missing_is_named(directory: Path, member: str) -> None:
    (directory / member).unlink()
    refused(directory, member)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 300, b"\xff" * 70, DEEP, b"PK\x03\x04", b"{"], ids=range(6)
)
def test_other_content_is_refused(directory: Path, member: str, content: bytes) -> None:
    (directory / member).write_bytes(content)
    refused(directory, "made")


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_what_is_cut_short_is_refused(directory: Path, member: str, share: float) -> None:
    content = (directory / member).read_bytes()
    (directory / member).write_bytes(content[: int(len(content) * share)])
    refused(directory, "made")


@LARGER
@pytest.mark.parametrize("member", MEMBERS)
def test_every_changed_byte_is_an_error_or_another_answer(directory: Path, member: str) -> None:
    """Most changed bytes cannot be detected."""
    content = (directory / member).read_bytes()
    for place in range(0, len(content), max(1, len(content) // scaled(8, 25))):
        changed = bytearray(content)
        changed[place] ^= 0x55
        (directory / member).write_bytes(changed)
        with contextlib.suppress(ModelError, Abstained):
            asked(directory)


# Documents ----------------------------------------------------------------------------------------


def replaced(value: Any, by: Any) -> Iterator[Any]:
    """Yield the document with each part of it in turn replaced; of lists the first item alone."""
    yield by
    if isinstance(value, dict):
        for name in list(value)[: 3 if len(value) > 10 else 10]:
            for inner in replaced(value[name], by):
                yield {**value, name: inner}
            yield {each: value[each] for each in value if each != name}
    elif isinstance(value, list) and value:
        for inner in replaced(value[0], by):
            yield [inner, *value[1:]]


@pytest.mark.parametrize("member", JSON)
@pytest.mark.parametrize(
    "by", by_day([None, 5, 10**400, "x", "\ud800", [], {}, 1e400], 2, range(8))
)
def test_a_part_of_another_type_is_an_error_or_another_answer(
    directory: Path, member: str, by: Any
) -> None:
    document = json.loads((directory / member).read_bytes())
    for made in replaced(document, by):
        (directory / member).write_text(json.dumps(made))
        with contextlib.suppress(ModelError, Abstained):
            asked(directory)
        if member == "model.json":
            shown = CliRunner().invoke(app, ["model", "show", str(directory)])
            assert shown.exit_code in (0, 1), shown.exception
            assert shown.exception is None or isinstance(shown.exception, SystemExit)


@pytest.mark.parametrize("member", JSON)
@pytest.mark.parametrize(
    "content", [b"[]", b"5", b"null", b'"x"', b'{"a":' * 999, b"[1,"], ids=range(6)
)
def test_another_document_is_refused(directory: Path, member: str, content: bytes) -> None:
    (directory / member).write_bytes(content)
    refused(directory, member)


@pytest.mark.parametrize(
    "patch",
    [
        "5", "[5]", "[[]]", '[["a"]]', '[["a",5,5]]', '[["x","/fs/new",{}]]', DEEP.decode(),
        '[["a","/fs/new",{}]]', '[["a","/fs/new",5]]', '[["a","/fs/new",{"perms":"-"}]]',
        '[["=","/fs/a.txt/perms",5]]', '[["=","/fs/a.txt/size","x"]]', '[["=","/fs/a.txt/x/y",1]]',
        '[["m","/fs/a.txt","/fs"]]', '[["m","/cwd","/fs/x"]]', '[["=","/cwd",5]]',
        '[["=","/cwd",""]]', '[["a","/env/X",5]]', '[["a","/settings/X",[]]]', '[["a","/env",{}]]',
    ],
)  # fmt: skip
def test_a_patch_that_is_none_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch, patch: str
) -> None:
    monkeypatch.setattr(small_world, "gone", lambda name: Kept(0, "", patch))
    small_memory(directory)
    with pytest.raises(ModelError, match=r"behaviors\.zst is damaged"):
        load_model(directory).memory.answer("rm b.txt")


# Arrays -------------------------------------------------------------------------------------------


def headed(header: str) -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


HEADS = (
    headed("{'descr': '<u4', 'fortran_order': False, 'shape': (1000000000000000000,), }"),
    headed("{'descr': '<u4', 'fortran_order': False, 'shape': (10000000000,), }"),
    headed("{'descr': '<u4', 'fortran_order': False, 'shape': (-1,), }"),
    headed("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }") + pickle.dumps([1, 2, 3]),
    headed("{'descr': [('a', '<u4')], 'fortran_order': False, 'shape': (1,), }") + b"1234",
    headed("{'descr': '<u4', 'shape': (1,), }"), headed("(" * 100), headed("5"),
)  # fmt: skip


@pytest.mark.parametrize("member", ARRAYS)
@pytest.mark.parametrize(
    "content",
    [
        *HEADS, saved(np.zeros(3)), saved(np.zeros((3, 3), dtype="<u4")), saved(np.array(5)),
        saved(np.array([{}], dtype=object)), saved(np.zeros(0, dtype="<u4")),
        saved(np.array(["x"])),
    ],
    ids=range(14),
)  # fmt: skip
def test_other_arrays_are_refused(directory: Path, member: str, content: bytes) -> None:
    (directory / member).write_bytes(content)
    refused(directory, "made")


@pytest.mark.parametrize("name", ["text", "length", "behavior", "start"])
def test_rows_that_lead_out_of_a_file_are_refused(directory: Path, name: str) -> None:
    rows = np.load(directory / "rows.npy")
    rows[name][3] = np.iinfo(rows[name].dtype).max
    np.save(directory / "rows.npy", rows)
    refused(directory, "rows.npy")


@pytest.mark.parametrize("change", [lambda at: at[::-1], lambda at: at + 1, lambda at: at[:-1]])
def test_places_that_lead_out_of_a_file_are_refused(directory: Path, change: Any) -> None:
    places = np.load(directory / "frames.npy")
    np.save(directory / "frames.npy", change(places).copy())
    refused(directory, "frames.npy")


NODES = {"feature", "left", "right"}


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": np.ones(3)}, {"weights": np.ones((len(PAIR), 1))},
        {"weights": np.full(len(PAIR), np.nan)}, {"scores": np.array([0.0])},
        {"scores": np.array([1.0, 0.0])}, {"shares": np.array([0.0, 7.0])},
        {"shares": np.array([0.0, np.inf])}, {"start": np.zeros(0)}, {"start": np.zeros((1, 1))},
        {"feature": np.array([[len(FEATURES), -1, -1]])}, {"feature": np.array([3, -1, -1])},
        {"feature": np.array([[0.5, -1, -1]])}, {"left": np.array([[0, 0, 0]])},
        {"left": np.array([[9, 0, 0]])}, {"right": np.array([[-1, 0, 0]])},
        {"threshold": np.array([[np.nan, 0, 0]])}, {"value": np.array([[0, 1]])},
        {"value": np.array([["a", "b", "c"]])}, {"scores": np.array([0.0, 1.0], dtype=complex)},
    ],
)  # fmt: skip
def test_a_ranker_that_fits_nothing_is_refused(directory: Path, changed: Any) -> None:
    ranker(**changed).save(directory / "ranker.npz")
    refused(directory, "ranker.npz")


def test_a_ranker_without_one_of_its_arrays_is_refused(directory: Path) -> None:
    with np.load(directory / "ranker.npz") as kept:
        arrays = dict(kept)
    for name in arrays:
        np.savez(directory / "ranker.npz", **{key: arrays[key] for key in arrays if key != name})
        refused(directory, "ranker.npz")


def test_what_a_ranker_claims_to_hold_is_not_made_room_for(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(directory / "ranker.npz", weights=np.zeros(9_000_000))
    assert "declared size is too large" in refused(directory, "ranker.npz")


# Archives -----------------------------------------------------------------------------------------


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def member(name: str, size: int = 0, **changed: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for attribute, value in changed.items():
        setattr(made, attribute, value)
    return made


ARCHIVES = {
    "nothing": b"", "zeros": b"\0" * 20_000, "no archive": b"x" * 20_000,
    "above": archive((member("../index.json", 2), b"{}")),
    "absolute": archive((member("/tmp/index.json", 2), b"{}")),
    "twice": archive((member("index.json", 2), b"{}"), (member("index.json", 2), b"[]")),
    "symlink": archive((member("index.json", type=tarfile.SYMTYPE, linkname="/etc/passwd"), b"")),
    "hard link": archive((member("index.json", type=tarfile.LNKTYPE, linkname="world.json"), b"")),
    "pipe": archive((member("index.json", type=tarfile.FIFOTYPE), b"")),
    "device": archive((member("index.json", type=tarfile.CHRTYPE), b"")),
    "directory": archive((member("index.json", type=tarfile.DIRTYPE), b"")),
    "sparse": archive((member("index.json", type=tarfile.GNUTYPE_SPARSE), b"")),
    "unknown": archive((member("run.sh", 2), b"{}")),
    "too long": member("index.json", 10**10).tobuf() + b"{}",
    "names": b"".join(member("a", type=tarfile.GNUTYPE_LONGNAME).tobuf() for _ in range(5_000)),
    "cut": archive((member("index.json", 20_000), b"a" * 20_000))[:9_000],
}  # fmt: skip


@pytest.mark.parametrize("content", ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "hostile.model"
    file.write_bytes(zstandard.compress(content))
    refused(file, "")
    assert not (tmp_path / "tmp").exists()
    assert not list(tmp_path.glob("*.json"))


def test_a_packed_model_that_is_cut_or_changed_is_refused(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.model"
    pack(directory, file)
    content = file.read_bytes()
    for made in (content[:-1], content[:-5], content[:99], content[:3], b"", content + content[:9]):
        file.write_bytes(made)
        if made[: len(content)] != content:
            refused(file, "small.model")
    changed = bytearray(content)
    changed[len(content) // 2] ^= 1
    file.write_bytes(changed)
    refused(file, "small.model")


def test_more_than_a_model_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LARGEST_OPEN", 1_000_000)
    for sized in (True, False):
        made = zstandard.ZstdCompressor(write_content_size=sized).compress(b"\0" * 2_000_000)
        (tmp_path / "bomb.model").write_bytes(made)
        assert "too large for a model" in refused(tmp_path / "bomb.model", "bomb.model")


@pytest.mark.parametrize("name", sorted({*MEMBERS} - {*INDEX}))
def test_a_damaged_member_of_a_packed_model_is_named(
    directory: Path, tmp_path: Path, name: str
) -> None:
    (directory / name).write_bytes(DEEP)
    pack(directory, tmp_path / "small.model")
    refused(tmp_path / "small.model", "model")


@pytest.mark.parametrize("name", INDEX)
def test_a_damaged_index_is_not_packed(directory: Path, tmp_path: Path, name: str) -> None:
    (directory / name).write_bytes(DEEP)
    with pytest.raises(ModelError, match=re.escape(name)):
        pack(directory, tmp_path / "small.model")
    assert not (tmp_path / "small.model").exists()


def repacked(directory: Path, **changed: bytes) -> bytes:
    """Pack an index, with other contents of some members."""
    members = {"index.json": (directory / "index.json").read_bytes()}
    members |= {
        "texts.bin": (directory / "texts.bin").read_bytes(),
        **dict(packed_members(directory)),
    }
    members |= {name.replace("_", "."): content for name, content in changed.items()}
    return zstandard.compress(
        archive(*((member(name, len(content)), content) for name, content in members.items()))
    )


@pytest.mark.parametrize("change", [lambda at: at[::-1], lambda at: at + 1, lambda at: at[:-1]])
def test_packed_places_that_lead_out_of_a_file_are_refused(
    directory: Path, tmp_path: Path, change: Any
) -> None:
    places = np.load(io.BytesIO(dict(packed_members(directory))["behaviors.npy"]))
    (tmp_path / "bad.model").write_bytes(
        repacked(directory, behaviors_npy=saved(change(places).copy()))
    )
    refused(tmp_path / "bad.model", "behaviors.npy")


def test_packed_rows_come_back_as_they_were(directory: Path, tmp_path: Path) -> None:
    pack(directory, tmp_path / "small.model")
    there = opened(tmp_path / "small.model")
    assert (there / "rows.npy").read_bytes() == (directory / "rows.npy").read_bytes()
    assert not (there / "columns.npz").exists()
    pack(there, tmp_path / "again.model")
    assert (tmp_path / "again.model").read_bytes() == (tmp_path / "small.model").read_bytes()


def other_columns(columns: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {}
    yield columns | {"length": columns["length"] + 1}
    yield columns | {"length": columns["length"][:-1]}
    yield columns | {"start": columns["start"] + 200}
    yield columns | {"classes": columns["classes"][:-1]}
    yield columns | {"length": np.array(5)}
    yield {name: values for name, values in columns.items() if name != "words"}


@pytest.mark.parametrize("way", range(7))
def test_columns_that_fit_no_text_are_refused(directory: Path, tmp_path: Path, way: int) -> None:
    columns = dict(np.load(io.BytesIO(dict(packed_members(directory))["columns.npz"])))
    made = io.BytesIO()
    np.savez(made, **list(other_columns(columns))[way])
    (tmp_path / "bad.model").write_bytes(repacked(directory, columns_npz=made.getvalue()))
    refused(tmp_path / "bad.model", "columns.npz")


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "too long"])
def test_a_model_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "strange.model"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "/dev/zero":
        path.symlink_to(kind)
    else:
        path = Path("x" * 5_000)
    with pytest.raises(ModelError):
        load_model(path)


# The command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("content", [b"", DEEP], ids=range(2))
def test_predict_says_which_file_is_damaged(directory: Path, name: str, content: bytes) -> None:
    (directory / name).write_bytes(content)
    done = CliRunner().invoke(app, ["predict", "cat a.txt", "--model", str(directory)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert "(SHIO-M01)" in done.stderr
    assert str(directory)[-9:] in "".join(done.stderr.split())


# What is in the cache -----------------------------------------------------------------------------


def unpacked(directory: Path, tmp_path: Path) -> tuple[Path, Path]:
    file = tmp_path / "small.model"
    pack(directory, file)
    return file, opened(file)


def test_an_unpacked_model_is_found_again(directory: Path, tmp_path: Path) -> None:
    file, there = unpacked(directory, tmp_path)
    before = (there / "world.json").stat()
    assert opened(file) == there
    assert (there / "world.json").stat() == before
    assert there.parent.stat().st_mode & 0o777 == 0o700


def plant(there: Path) -> None:
    write_card(there, {"name": "planted"})


def link(there: Path) -> None:
    there.rename(there.with_name("elsewhere"))
    plant(there.with_name("elsewhere"))
    there.symlink_to("elsewhere")


def replace(there: Path) -> None:
    for path in there.iterdir():
        path.unlink()
    plant(there)


def link_member(there: Path) -> None:
    (there / "model.json").rename(there.parent / "model.json")
    plant(there.parent)
    (there / "model.json").symlink_to("../model.json")


def copy_with_times(there: Path) -> None:
    status = (there / "model.json").stat()
    content = (there / "model.json").read_text()
    (there / "model.json").write_text(content.replace("small", "other"))
    os.utime(there / "model.json", ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "harm",
    [
        plant, link, replace, link_member, copy_with_times,
        lambda there: (there / "model.json").unlink(),
        lambda there: (there / "seen.npz").write_bytes(b"planted"),
        lambda there: (there / ".sealed").write_bytes(DEEP),
        lambda there: there.chmod(0o777), lambda there: (there / "world.json").chmod(0o666),
    ],
)  # fmt: skip
def test_what_was_planted_in_the_cache_is_not_believed(
    directory: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    file, there = unpacked(directory, tmp_path)
    harm(there)
    assert card_of(file)["name"] == "small"
    assert not there.is_symlink()
    assert {path.name for path in there.iterdir()} == {*MEMBERS, "dictionary.bin", ".sealed"}
    asked(file)


def test_what_lay_in_the_cache_before_is_not_believed(directory: Path, tmp_path: Path) -> None:
    file, there = unpacked(directory, tmp_path)
    name = there.name
    other = Path(os.environ["SHIOENV_CACHE"]) / "models" / "opened"
    (there / ".sealed").unlink()
    plant(there)
    other.chmod(0o777)
    assert card_of(file)["name"] == "small"
    assert (other / name).stat().st_mode & 0o777 == 0o700


def test_a_cache_of_somebody_else_is_refused(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _ = unpacked(directory, tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(HostError, match="SHIOENV_CACHE=DIR"):
        opened(file)
