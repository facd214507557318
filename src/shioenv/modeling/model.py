"""Models as files: packed, listed, opened. The default one comes with the package."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

from shioenv.domain.runner import Runner
from shioenv.errors import MissingExtraError, ModelError, did_you_mean
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.modeling.memory import Memory
from shioenv.modeling.router import Router
from shioenv.modeling.world import World
from shioenv.system.build import cache_directory

if TYPE_CHECKING:
    from shioenv.modeling.compact import Now
    from shioenv.modeling.seq2seq import Seq2seq

SUFFIX = ".model"
DEFAULT = "default"
SHIPPED = Path(__file__).parent / "models"
"""Models that come with the package."""

CARD = "model.json"
LARGEST_FILE = 16 * 1024 * 1024
"""Bytes of a packed memory at most."""

LARGEST_TRAINED = 60_000_000
"""Bytes of a packed sequence model at most, and of packed examples."""

SEQ2SEQ = "seq2seq"
"""What the card of a sequence model says that it is."""

FEWER = "make it of fewer records"

_LARGEST_OPEN = 1 << 30
_FILES = frozenset(
    {
        *("behaviors.bin", "behaviors.npy", "index.json", "model.json", "ranker.npz", "rows.npy"),
        *("texts.bin", "world.json"),
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"),
        *("examples.json", "examples.npy", "tokens.bin", "seen.npz"),
    }
)


def load_model(
    name: str | Path | None = None,
    *,
    seq2seq: str | Path | None = None,
    stages: Runner | None = None,
    stages_name: str = "another",
    abstain_below: float = 0.0,
    world: World | None = None,
) -> Router:
    """A model, ready to be asked: `load_model().run("ls -l").output`. Starts no process, and needs
    no built system.

    `name` is that of a model (default: the one that comes with the package), or the path of a
    packed model or of its directory. `seq2seq` is a sequence model, by name or path, which answers
    where it is surer than the memory, and needs the extra `train`. `stages` answers commands that
    read a pipe (default: the model itself), and is called `stages_name` in every answer that used
    it. Below a confidence of `abstain_below`, 0 to 1, it abstains (default: never). `world` is the
    machine that it is asked about (default: the one that it was made on); `world_called` gives that
    of a built system. Errors: ModelError with the names that are known, or for what holds no model.
    """
    directory = opened(located(name or DEFAULT))
    card = read_card(directory)
    if card.get("kind") == SEQ2SEQ:
        raise ModelError(
            f"{name} is a sequence model, which stands beside a memory", hint=f"--seq2seq {name}"
        )
    memory = Memory(directory)
    written = None
    if seq2seq is not None:
        written = load_seq2seq(seq2seq, memory=memory, world=world)
    return Router(
        memory, card, written=written, stages=stages, stages_name=stages_name,
        abstain_below=abstain_below, world=world,
    )  # fmt: skip


def load_seq2seq(
    name: str | Path,
    *,
    memory: Memory | None = None,
    world: World | None = None,
    now: Now | None = None,
) -> Seq2seq:
    """A sequence model by name or path; the rest as `Seq2seq` takes it.

    Errors: ModelError, MissingExtraError.
    """
    try:
        from shioenv.modeling.seq2seq import Seq2seq
    except ImportError:
        raise MissingExtraError("a sequence model", "train", "torch", "transformers") from None
    return Seq2seq(opened(located(name)), memory=memory, world=world, now=now)


def model_names() -> dict[str, Path]:
    """The models that can be named, and where they lie: those of the package, then one's own."""
    found: dict[str, Path] = {}
    for directory in (cache_directory() / "models", SHIPPED):
        for path in sorted(directory.glob(f"*{SUFFIX}")):
            found[path.name.removesuffix(SUFFIX)] = path
    return found


def located(name: str | Path) -> Path:
    """Where a model lies that a name or a path says. Errors: ModelError."""
    path = Path(name)
    if path.exists():
        return path
    known = model_names()
    if str(name) in known:
        return known[str(name)]
    raise ModelError(f"no model is called {str(name)!r}", hint=did_you_mean(str(name), known))


def opened(path: Path) -> Path:
    """The directory of a model; a packed one is unpacked into the cache when it is first opened.

    Errors: ModelError for a file that is no model.
    """
    if path.is_dir():
        return path
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(packed).hexdigest()
    directory = cache_directory() / "models" / "opened" / digest[:32]
    if directory.is_dir():
        return directory
    with storage_errors(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as making:
            made = Path(making) / "model"
            made.mkdir()
            for name, content in _members(packed, path):
                (made / name).write_bytes(content)
            try:
                made.rename(directory)
            except OSError:
                if not directory.is_dir():  # somebody else was faster
                    raise
    return directory


def pack(directory: Path, file: Path, *, most: int = LARGEST_FILE, hint: str = FEWER) -> int:
    """Writes the directory of a model or of examples as one file; its bytes. The same directory
    gives the same file.

    Errors: ModelError, with the hint, where it would have more than `most` bytes;
    DatasetStorageError.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(directory.iterdir()):
            if path.name not in _FILES:
                continue
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            with path.open("rb") as content:
                tar.addfile(member, content)
    settings = zstandard.ZstdCompressionParameters.from_level(
        19, window_log=26, enable_ldm=True, write_checksum=True
    )
    packed = zstandard.ZstdCompressor(compression_params=settings).compress(archive.getvalue())
    if len(packed) > most:
        raise ModelError(
            f"{file.name} has {len(packed) / 1e6:.1f} MB packed, {most / 1e6:.1f} at most",
            hint=hint,
        )
    with storage_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, packed)
    return len(packed)


def read_card(directory: Path) -> dict[str, Any]:
    """What a model says of itself; nothing where it says nothing. Errors: ModelError."""
    try:
        card = json.loads((directory / CARD).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{directory / CARD} is no card: {error}") from None
    return dict(card)


def card_of(name: str | Path) -> dict[str, Any]:
    """What a model says of itself, by its name or path. Errors: ModelError."""
    return read_card(opened(located(name)))


def write_card(directory: Path, card: Mapping[str, Any]) -> None:
    """Writes what a model says of itself into its directory."""
    text = json.dumps(dict(card), ensure_ascii=False, indent=1)
    (directory / CARD).write_text(f"{text}\n", encoding="utf-8")


def _members(packed: bytes, path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a packed model, looked at before any is written."""
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(packed)
        content = reader.read(_LARGEST_OPEN + 1)
        if len(content) > _LARGEST_OPEN:
            raise ModelError(f"{path} holds more than a model")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
            for member in tar.getmembers():
                if not member.isreg() or member.name not in _FILES:
                    raise ModelError(f"{path} holds {member.name!r:.60}, which no model has")
                file = tar.extractfile(member)
                yield member.name, file.read() if file else b""
    except (zstandard.ZstdError, tarfile.TarError, EOFError) as error:
        raise ModelError(f"{path} is no packed model: {error}") from None
