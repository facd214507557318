"""Flatten the layers of a container image in an OCI layout into one tarball.

This follows the OCI image specification 1.1. The size and SHA-256 of each blob are verified. A
whiteout `.wh.NAME` removes the `NAME` of lower layers. The opaque whiteout `.wh..wh..opq` removes
all files of lower layers in its directory.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from shioenv.errors import RootfsTarError
from shioenv.files.compressed import unpacking
from shioenv.files.documents import parse_json
from shioenv.files.durable import sha256_of
from shioenv.files.regular import open_regular, read_regular

MOST_LAYERS = 128
"""Maximum number of layers of an image, the limit of container engines."""

MOST_BYTES = 16 << 30
"""Maximum bytes of a decompressed tarball, and of all layers of an image together."""

_LARGEST_DOCUMENT = 4 << 20
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_IN_LAYOUT = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_MANIFESTS = frozenset(
    {
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    }
)
_INDEXES = frozenset(
    {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    }
)


def is_layout(path: Path) -> bool:
    """Whether a directory is an OCI layout."""
    return path.is_dir() and (path / "oci-layout").is_file() and (path / "index.json").is_file()


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a layout."""

    digest: str
    """`sha256:` and the digest of the image's manifest."""
    layers: tuple[str, ...]
    """Digests of the layers, lowest first."""
    config: Mapping[str, Any]


def find_image(layout: Path, architecture: str = "amd64") -> Image:
    """Return the only image of a layout for an architecture.

    Errors: RootfsTarError if the layout cannot be read, or a blob does not match its size or
    digest. RootfsTarError too if there is no image, or more than one, for the architecture.
    """
    found = [*_manifests(layout, _document(layout, layout / "index.json"), architecture, 0)]
    if len(found) != 1:
        images = f"{len(found)} images" if found else "no image"
        raise RootfsTarError(
            f"{layout} contains {images} for {architecture}",
            hint="make a layout of one image: skopeo copy oci:DIR:TAG oci:ONE",
        )
    digest, manifest = found[0]
    layers = manifest.get("layers")
    if not isinstance(layers, list) or not 0 < len(layers) <= MOST_LAYERS:
        raise _damaged(layout, f"the manifest lists no layers, or more than {MOST_LAYERS}")
    for layer in layers:
        kind = str(_described(layout, layer).get("mediaType"))
        if "nondistributable" in kind and not _blob(layout, layer).exists():
            raise _damaged(layout, "a layer is stored elsewhere (nondistributable)")
    config = _document(layout, _blob(layout, manifest["config"]))
    return Image(digest, tuple(str(_checked(layout, layer)["digest"]) for layer in layers), config)


def unpack_layout(archive: Path, directory: Path) -> bool:
    """Unpack the archive of an OCI layout; return False if the file is not such an archive.

    Only the files of a layout are unpacked. Errors: RootfsTarError for a damaged archive.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            members = {}
            for member in tar:
                name = member.name.removeprefix("./")
                if _IN_LAYOUT.fullmatch(name) and member.isreg() and not member.issparse():
                    members[name] = member
                elif len(members) == 0 and not member.isdir():
                    return False
            if "oci-layout" not in members or "index.json" not in members:
                return False
            for name, member in members.items():
                content = tar.extractfile(member)
                assert content is not None
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                with (directory / name).open("wb") as out:
                    shutil.copyfileobj(content, out)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RootfsTarError(f"{archive} cannot be read as an archive: {error}") from error
    return True


def _manifests(
    layout: Path, index: Mapping[str, Any], architecture: str, depth: int
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (digest, manifest) of each image for an architecture."""
    listed = index.get("manifests")
    if not isinstance(listed, list) or depth > 2:
        raise _damaged(layout, "index.json lists no manifests")
    for entry in listed:
        _checked(layout, entry)
        kind, platform = str(entry.get("mediaType")), entry.get("platform")
        if isinstance(platform, dict) and platform.get("architecture") != architecture:
            continue  # attestations have the architecture `unknown`
        if kind in _INDEXES:
            inner = _document(layout, _blob(layout, entry))
            yield from _manifests(layout, inner, architecture, depth + 1)
        elif kind in _MANIFESTS:
            manifest = _document(layout, _blob(layout, entry))
            config = _document(layout, _blob(layout, _checked(layout, manifest.get("config"))))
            if config.get("architecture", architecture) == architecture:
                yield str(entry["digest"]), manifest


def _described(layout: Path, descriptor: Any) -> Mapping[str, Any]:
    """Return the descriptor of a blob after checking that its digest is a SHA-256."""
    if not isinstance(descriptor, dict) or not _DIGEST.match(str(descriptor.get("digest"))):
        raise _damaged(layout, "the name of a blob is not a SHA-256")
    return descriptor


def _checked(layout: Path, descriptor: Any) -> Mapping[str, Any]:
    """Return the descriptor of a blob after verifying the blob's size and digest."""
    known = _described(layout, descriptor)
    path, size = _blob(layout, known), known.get("size")
    try:
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            there = file.tell()
    except OSError as error:
        raise _damaged(layout, f"{path.name[:12]} cannot be read: {error.strerror}") from error
    if f"sha256:{digest}" != known["digest"] or there != size:
        raise _damaged(layout, f"the blob {path.name[:12]} has another size or SHA-256")
    return known


def _blob(layout: Path, descriptor: Mapping[str, Any]) -> Path:
    return layout / "blobs" / "sha256" / str(descriptor["digest"]).removeprefix("sha256:")


def _document(layout: Path, path: Path) -> dict[str, Any]:
    try:
        document = parse_json(read_regular(path, _LARGEST_DOCUMENT))
    except (OSError, ValueError) as error:
        raise _damaged(layout, f"{path.name[:12]} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise _damaged(layout, f"{path.name[:12]} is not a JSON object")
    return document


def _damaged(layout: Path, why: str) -> RootfsTarError:
    return RootfsTarError(
        f"{layout} is not a valid OCI layout: {why}", hint="copy or pull the image again"
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """The file at one path: a member of an archive, and the archive with its content."""

    member: tarfile.TarInfo
    archive: tarfile.TarFile


def write_flat(layers: list[Path], out: Path) -> None:
    """Merge layers, lowest first, into one tarball and apply their whiteouts.

    `layers` are uncompressed tarballs. Errors: RootfsTarError for an unreadable archive, a name
    with `..`, a sparse file, or a hard link without a target. RootfsTarError too if the files have
    more than `MOST_BYTES` in total (before anything is written). Each hard link counts as a file.
    """
    tree: dict[str, _Entry] = {}
    with ExitStack() as stack:
        for number, layer in enumerate(layers):
            try:
                archive = stack.enter_context(tarfile.open(layer, "r:"))
                _apply(tree, archive, number)
            except (tarfile.TarError, OSError, EOFError, ValueError) as error:
                raise RootfsTarError(f"layer {number} cannot be read as a tar: {error}") from error
        files = (entry.member for entry in tree.values() if entry.member.isreg())
        if sum(file.size for file in files) > MOST_BYTES:
            raise RootfsTarError(f"the layers contain files of more than {MOST_BYTES:,} bytes")
        with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as flat:
            for path in sorted(tree, key=lambda path: path.split("/")):
                entry = tree[path]
                member = copy(entry.member)
                member.name, member.pax_headers = f"./{path}", {}
                content: IO[bytes] | None = None
                if entry.member.isreg():
                    content = entry.archive.extractfile(entry.member)
                flat.addfile(member, content)


def name_components(name: str) -> list[str]:
    """Return the components of a member's name, without empty ones and `.`."""
    return [part for part in name.split("/") if part not in ("", ".")]


def _apply(tree: dict[str, _Entry], archive: tarfile.TarFile, number: int) -> None:
    """Apply one layer to the tree. Its whiteouts affect only lower layers."""
    members = []
    for member in archive:
        parts = name_components(member.name)
        if ".." in parts:
            raise RootfsTarError(
                f"layer {number} contains {member.name!r}, a path outside the root"
            )
        if parts:
            members.append((parts, member))
    gone: set[str] = set()
    emptied: set[str] = set()
    for parts, member in members:
        path, name = "/".join(parts), parts[-1]
        if name == _OPAQUE:
            emptied.add("/".join(parts[:-1]))
        elif name.startswith(_WHITEOUT):
            gone.add("/".join([*parts[:-1], name.removeprefix(_WHITEOUT)]))
        elif not member.isdir() and path in tree and tree[path].member.isdir():
            gone.add(path)
    for path in [path for path in tree if _is_covered(path, gone, emptied)]:
        del tree[path]
    for parts, member in members:
        if parts[-1].startswith(_WHITEOUT):
            continue
        path = "/".join(parts)
        if member.issparse():
            raise RootfsTarError(f"layer {number} holds {path!r} as a sparse file")
        entry = _Entry(member, archive)
        if member.islnk():
            origin = "/".join(name_components(member.linkname))
            if origin not in tree or tree[origin].member.isdir():
                raise RootfsTarError(
                    f"layer {number}: {path!r} is a hard link to {origin!r}, which does not exist"
                )
            entry = tree[origin]
        tree[path] = entry


def _is_covered(path: str, gone: Set[str], emptied: Set[str]) -> bool:
    """Whether a path, or a parent of it, was removed or is beneath an emptied directory."""
    if path in gone:
        return True
    while path:
        path = path.rpartition("/")[0]
        if path in emptied or (path and path in gone):
            return True
    return False


def plain_tar(path: Path, work: Path, most_bytes: int) -> tuple[Path, str]:
    """Return the decompressed tarball and its source, `tar:` followed by the tarball's SHA-256.

    Errors: RootfsTarError if the tarball cannot be read or decompressed, or decompresses to more
    than `most_bytes`; OSError.
    """
    import bz2
    import lzma

    try:
        with open_regular(path) as raw:
            magic = raw.read(6)
        source = f"tar:{sha256_of(path)}"
    except OSError as error:
        raise RootfsTarError(f"{path} cannot be read: {error.strerror}") from error
    openers: dict[bytes, Callable[[Path], Any]] = {
        b"\x1f\x8b": unpacking,
        b"BZh": bz2.open,
        b"\xfd7zXZ\x00": lzma.open,
        b"\x28\xb5\x2f\xfd": unpacking,
    }
    start = next((start for start in openers if magic.startswith(start)), None)
    if start is None:
        return path, source
    plain = work / "base.tar"
    try:
        with openers[start](path) as compressed, plain.open("wb") as out:
            _copy(iter(partial(compressed.read, 1 << 20), b""), out, path, most_bytes)
    except (EOFError, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise  # an I/O error, not faulty compressed data
        why = getattr(error, "strerror", None) or error
        raise RootfsTarError(f"{path} cannot be decompressed: {why}") from error
    return plain, source


def _copy(content: Iterator[bytes], out: IO[bytes], path: Path, most_bytes: int) -> None:
    """Copy decompressed content to `out`; raise RootfsTarError beyond `most_bytes`."""
    left = most_bytes
    for piece in content:
        left -= len(piece)
        if left < 0:
            raise RootfsTarError(f"{path} unpacks to more than {most_bytes:,} bytes")
        out.write(piece)
