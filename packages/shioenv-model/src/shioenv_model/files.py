"""Model files: packing, listing and opening. The default model comes with the package."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict

import zstandard

from shioenv.domain.runner import Runner
from shioenv.errors import MissingExtraError, ModelError, did_you_mean
from shioenv.files.durable import atomic_write, cache_directory, storage_errors
from shioenv.files.regular import read_regular
from shioenv_model.memory.index import (
    BEHAVIORS,
    COLUMNS,
    LAYOUT,
    PACKED,
    ROWS,
    holds_index,
)
from shioenv_model.memory.index_writer import packed_members, unpack_index
from shioenv_model.memory.members import json_member, raise_model_errors
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.sources import without as sources_without
from shioenv_model.memory.world import World
from shioenv_model.model import Model

if TYPE_CHECKING:
    from shioenv_model.sequence.compact import Now
    from shioenv_model.sequence.seq2seq import Seq2seq
import stat

from shioenv.errors import HostError

SUFFIX = ".model"
DEFAULT = "default"
SHIPPED = Path(__file__).parent / "models"
"""The directory of the models that come with the package."""

CARD = "model.json"
LARGEST_FILE = 64_000_000
"""Maximum bytes of a packed model, and of packed examples."""

SEQ2SEQ = "seq2seq"
"""The `kind` in the card of a sequence model."""

FEWER = "use fewer records"

_LARGEST_OPEN = 1 << 30
_LARGEST_PACKED = 2 * LARGEST_FILE
_FILES = frozenset(
    {
        *("index.json", "model.json", "ranker.npz", "texts.bin", "world.json", *PACKED),
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"),
        *("examples.json", "examples.npy", "tokens.bin", "seen.npz"),
    }
)


class _Material(TypedDict, total=False):
    """Records from which a model was made."""

    records: Required[int]
    policy: Required[str]
    sampler: Required[str]
    seed: Required[int]
    grammar_digest: str
    recipe_sha256: str


class _Base(TypedDict):
    """The model of another machine that a model adds to."""

    name: str
    digest: str


class _Card(TypedDict, total=False):
    """The fields of a card that are used here."""

    name: str
    kind: str
    system: str
    system_digest: str
    records: int
    material: list[_Material]
    learned: dict[str, Any]
    license: str
    limits: str
    version: str
    base: _Base


class _System(TypedDict):
    digest: str
    now: str


class _Learned(TypedDict):
    right: float
    held_back: int
    scores: list[float]
    shares: list[float]


class _Shape(TypedDict):
    source_tokens: int
    target_tokens: int
    neighbours: int


class _Plan(TypedDict):
    seed: int


class _Seq2seqCard(TypedDict, total=False):
    """The fields of a sequence model's card, in addition to `_Card`."""

    name: Required[str]
    systems: Required[dict[str, _System]]
    records: Required[int]
    learned: Required[_Learned]
    shape: Required[_Shape]
    plan: Required[_Plan]
    parameters: Required[int]
    steps: Required[int]
    limits: Required[str]
    license: Required[str]


def load_model(
    name: str | Path | None = None,
    *,
    seq2seq: str | Path | None = None,
    stages: Runner | None = None,
    stages_name: str = "another",
    abstain_below: float = 0.0,
    world: World | None = None,
    without: Collection[str] = (),
) -> Model:
    """Load a model by name or path, as `shioenv.load_model` does.

    Errors: ModelError with the known names, or for a path without a model; UsageError for an
    unknown source.
    """
    sources = sources_without(without)
    directory = opened(located(name or DEFAULT))
    card = read_card(directory)
    if card.get("kind") == SEQ2SEQ:
        raise ModelError(
            f"{name} is a sequence model, which is used together with a memory",
            hint=f"--seq2seq {name}",
        )
    memory = load_memory(directory)
    written = None
    if seq2seq is not None:
        written = load_seq2seq(seq2seq, memory=memory, world=world)
    return Model(
        memory, card, written=written, stages=stages, stages_name=stages_name,
        abstain_below=abstain_below, world=world, sources=sources,
    )  # fmt: skip


def load_memory(directory: Path) -> Memory:
    """Load the memory in a model's directory, with the memory that it adds to.

    Errors: ModelError, also if the known model of the base's name has another digest.
    """
    base = read_card(directory).get("base")
    if base is None:
        return Memory(directory)
    other = load_memory(opened(located(base["name"])))
    if other.digest != base["digest"]:
        raise ModelError(
            f"it adds to the model {base['name']} {base['digest']}; the known one is "
            f"{other.digest}",
            hint="run `shioenv train memory` with --onto again",
        )
    return Memory(directory, base=other)


def load_seq2seq(
    name: str | Path,
    *,
    memory: Memory | None = None,
    world: World | None = None,
    now: Now | None = None,
) -> Seq2seq:
    """Load a sequence model by name or path. The other arguments are those of `Seq2seq`.

    Errors: ModelError, MissingExtraError.
    """
    try:
        from shioenv_model.sequence.seq2seq import Seq2seq
    except ImportError:
        raise MissingExtraError("a sequence model", "train", "torch", "transformers") from None
    return Seq2seq(opened(located(name)), memory=memory, world=world, now=now)


def model_names() -> dict[str, Path]:
    """Return the paths of the known models by name: the user's and the package's.

    If both have a model of the same name, the package's model takes precedence.
    """
    found: dict[str, Path] = {}
    for directory in (cache_directory() / "models", SHIPPED):
        for path in sorted(filter(Path.exists, directory.glob(f"*{SUFFIX}"))):
            found[path.name.removesuffix(SUFFIX)] = path
    return found


def located(name: str | Path) -> Path:
    """Return the path of a model, by name or path. Errors: ModelError."""
    path = Path(name)
    with suppress(OSError):  # a name too long for a path
        if path.exists():
            return path
    known = model_names()
    if str(name) in known:
        return known[str(name)]
    raise ModelError(
        f"unknown model {str(name)!r}",
        hint=did_you_mean(str(name), known),
        named=FileNotFoundError(),
    )


def opened(path: Path) -> Path:
    """Return a model's directory. A packed model is unpacked into the cache on first use.

    It is unpacked again if the unpacked files were changed, or belong to another user. Errors:
    ModelError for an invalid file; HostError for a cache that belongs to another user.
    """
    if path.is_dir():
        return path
    with raise_model_errors(path):
        packed = read_regular(path, _LARGEST_PACKED)
    digest = hashlib.sha256(packed).hexdigest()
    place = cache_directory() / "models" / "opened"
    directory = place / f"{digest[:32]}-{LAYOUT}"
    with storage_errors(directory):
        place.mkdir(parents=True, exist_ok=True)
        keep_private(place)
        if is_sealed(directory):
            return directory
        with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as making:
            made = Path(making) / "model"
            made.mkdir()
            behaviors = b""
            for name, content in _members(packed, path):
                if name == BEHAVIORS:  # a large file, which `unpack_index` writes in another form
                    behaviors = content
                else:
                    (made / name).write_bytes(content)
            if holds_index(made):
                unpack_index(made, behaviors)
            seal(made)
            with suppress(OSError):  # fails if nothing was unpacked before
                directory.rename(Path(making) / "before")
            try:
                made.rename(directory)
            except OSError:
                if not is_sealed(directory):  # else another process has just unpacked it
                    raise
    return directory


def pack(directory: Path, file: Path, *, hint: str = FEWER) -> int:
    """Pack the directory of a model or of examples into one file. Return its size in bytes.

    The same directory always results in the same file. Errors: ModelError, with the hint, for a
    file over `LARGEST_FILE` bytes; DatasetStorageError.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        own = [path for path in directory.iterdir() if path.name in _FILES]
        members = {path.name: path.read_bytes() for path in own}
        if holds_index(directory):
            members |= packed_members(directory)
        for name in sorted(members, key=lambda name: ROWS if name == COLUMNS else name):
            member = tarfile.TarInfo(name)
            member.size = len(members[name])
            tar.addfile(member, io.BytesIO(members[name]))
    settings = zstandard.ZstdCompressionParameters.from_level(
        19, window_log=26, enable_ldm=True, write_checksum=True
    )
    packed = zstandard.ZstdCompressor(compression_params=settings).compress(archive.getvalue())
    if len(packed) > LARGEST_FILE:
        raise ModelError(
            f"{file.name} has {len(packed) / 1e6:.1f} MB, above the limit of "
            f"{LARGEST_FILE / 1e6:.0f} MB",
            hint=hint,
        )
    with storage_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, packed)
    return len(packed)


def read_card(directory: Path) -> dict[str, Any]:
    """Read a model's card, its metadata; empty if it has none. Errors: ModelError."""
    file = directory / CARD
    if not os.path.lexists(file):
        return {}
    card = json_member(file, _Card)
    if card.get("kind") == SEQ2SEQ:
        card = json_member(file, _Seq2seqCard)
    return dict(card)


def card_of(name: str | Path) -> dict[str, Any]:
    """Read a model's card, by the model's name or path. Errors: ModelError."""
    return read_card(opened(located(name)))


def write_card(directory: Path, card: Mapping[str, Any]) -> None:
    """Write a model's card into its directory."""
    text = json.dumps(dict(card), ensure_ascii=False, indent=1)
    (directory / CARD).write_text(f"{text}\n", encoding="utf-8")


def _members(packed: bytes, path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files in a packed model, each checked first.

    Errors: ModelError.
    """
    with raise_model_errors(path, "is not a packed model"):
        size = zstandard.frame_content_size(packed)
        if not 0 <= size <= _LARGEST_OPEN:
            raise ValueError("its size is undeclared, or too large for a model")
        content = zstandard.ZstdDecompressor().decompress(packed)
        seen: set[str] = set()
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar:
                if not member.isreg() or member.issparse() or member.name not in _FILES:
                    raise ValueError(
                        f"it contains {member.name!r:.60}, which is not part of a model"
                    )
                if member.name in seen:
                    raise ValueError(f"it contains {member.name!r} twice")
                seen.add(member.name)
                file = tar.extractfile(member)
                yield member.name, file.read() if file else b""


SEAL = ".sealed"
"""The file in a sealed directory that lists the other files."""

_LARGEST = 64 * 1024
_FILE = stat.S_IRUSR | stat.S_IWUSR
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def keep_private(directory: Path) -> None:
    """Close a directory of this user to other users, because they could add directories to it.

    Errors: HostError for a directory of another user, and for a link.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise HostError(
            f"{directory} belongs to another user, who could change its files",
            hint="choose another cache directory: SHIOENV_CACHE=DIR",
        )
    if stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
        directory.chmod(stat.S_IRWXU)


def seal(directory: Path) -> None:
    """Record the files of a directory, and close it to other users.

    All files must exist already.
    """
    for path in directory.iterdir():
        path.chmod(_FILE)
    atomic_write(directory / SEAL, json.dumps(_files(directory)).encode())
    (directory / SEAL).chmod(_FILE)
    directory.chmod(stat.S_IRWXU)


def is_sealed(directory: Path) -> bool:
    """Whether a directory belongs to this user, is writable only by them, and has a valid seal.

    The seal is valid if no file was added, removed, replaced or written to since `seal`.
    """
    try:
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
            return False
        known = json.loads(read_regular(directory / SEAL, _LARGEST))
        return bool(known == _files(directory)) and _is_ours((directory / SEAL).lstat())
    except (OSError, ValueError, RecursionError):
        return False


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _OF_OTHERS


def _files(directory: Path) -> dict[str, list[int]]:
    """Return inode, size, mtime and ctime (in nanoseconds) of each file, by name.

    Any change of a file sets its ctime, which no user can choose. Errors: ValueError if there is
    anything except regular files of this user.
    """
    found: dict[str, list[int]] = {}
    for path in sorted(directory.iterdir()):
        if path.name == SEAL:
            continue
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
            raise ValueError(f"{path} is not this user's own file")
        found[path.name] = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return found
