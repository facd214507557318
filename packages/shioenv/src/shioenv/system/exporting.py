"""Export a built system as one file, and import it with the same digest.

The file is the archive of an OCI layout, which container engines load as well. The first layer of
its image is the system's canonical tar, the second one holds the packages' copyright files. The key
`shioenv` of the image's configuration has everything else of the system, and the licences by
package.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from shioenv.errors import RootfsTarError, SandboxError, SystemCorruptError
from shioenv.files.durable import cache_directory, replacing, sha256_of
from shioenv.system import build as building
from shioenv.system import image
from shioenv.system.answers import Answers
from shioenv.system.bootstrap import Progress
from shioenv.system.declare import declared_names, parse_declaration
from shioenv.system.idmap import find_idmap, spawn_mapped
from shioenv.system.oci import name_components
from shioenv.system.packages import Package, lock_text, parse_lock
from shioenv.system.store import System, find_system

KEY = "shioenv"
"""Key of the system's part in the image's configuration."""

_LEVEL = 12
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


class ExportedSystem(msgspec.Struct):
    """A system's part of the image's configuration. File contents are decoded as Latin-1."""

    schema: int
    name: str
    digest: str
    declaration: str
    answers: Answers
    proc: dict[str, str]
    processes: dict[str, str]
    web: dict[str, str]
    licences: dict[str, dict[str, Any]]


def export_system(name: str | None, file: Path, report: Progress = building.silent) -> System:
    """Write a built system to `file`, and return it.

    The same system gives the same bytes with the same version of `zstandard`. Errors: those of
    `find_system`; SystemCorruptError if the system's files are not those of the build; OSError.
    """
    system = find_system(name)
    with tempfile.TemporaryDirectory(prefix=building.IMPORTING, dir=cache_directory()) as scratch:
        work = Path(scratch)
        report("packing the root filesystem")
        digest = _write_canonical(system, work / "rootfs.tar")
        licences, texts = _licences(system)
        _write_texts(texts, system, work / "licences.tar")
        blobs: dict[str, bytes | Path] = {}
        layers, ids = [], []
        for layer in ("rootfs.tar", "licences.tar")[: 2 if texts else 1]:
            report(f"compressing {layer}")
            packed = work / f"{layer}.zst"
            with (work / layer).open("rb") as plain, packed.open("wb") as out:
                compressor = zstandard.ZstdCompressor(level=_LEVEL)
                compressor.copy_stream(plain, out, size=(work / layer).stat().st_size)
            layers.append(_blob(blobs, packed, _LAYER))
            ids.append(f"sha256:{sha256_of(work / layer)}")
        assert ids[0] == f"sha256:{digest}"
        config = _config(system, ids, licences)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _blob(blobs, _json(config), _CONFIG),
            "layers": layers,
        }
        index = {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [
                {
                    **_blob(blobs, _json(manifest), _MANIFEST),
                    "platform": {"architecture": config["architecture"], "os": "linux"},
                    "annotations": {"org.opencontainers.image.ref.name": system.name},
                }
            ],
        }
        with replacing(file) as out, tarfile.open(fileobj=out, mode="w") as archive:
            _add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            _add(archive, "index.json", _json(index))
            for blob in sorted(blobs):
                _add(archive, f"blobs/sha256/{blob}", blobs[blob])
    return system


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _blob(blobs: dict[str, bytes | Path], content: bytes | Path, kind: str) -> dict[str, Any]:
    """Keep a blob, and return its descriptor."""
    if isinstance(content, Path):
        digest, size = sha256_of(content), content.stat().st_size
    else:
        digest, size = hashlib.sha256(content).hexdigest(), len(content)
    blobs[digest] = content
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _add(archive: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    member = tarfile.TarInfo(name)
    if isinstance(content, Path):
        member.size = content.stat().st_size
        with content.open("rb") as data:
            archive.addfile(member, data)
    else:
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _config(system: System, ids: list[str], licences: Mapping[str, Any]) -> dict[str, Any]:
    """Return the image's configuration with the key `shioenv`, as the OCI specification allows."""

    def files(directory: str) -> dict[str, str]:
        top = system.path / directory
        found = (path for path in sorted(top.rglob("*")) if path.is_file())
        return {str(path.relative_to(top)): path.read_bytes().decode("latin-1") for path in found}

    declaration = system.declaration
    text = (system.path / "declaration.toml").read_text(encoding="utf-8")
    return {
        "architecture": declaration.distribution.architecture,
        "os": "linux",
        "created": declaration.instant.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "config": {
            "Env": [f"{name}={value}" for name, value in declaration.session.environment.items()],
            "User": declaration.session.user,
            "WorkingDir": declaration.start_directory,
            "Cmd": ["/bin/bash"],
        },
        "rootfs": {"type": "layers", "diff_ids": ids},
        KEY: {
            "schema": 1,
            "name": system.name,
            "digest": system.digest,
            "declaration": text,
            "answers": asdict(system.answers),
            **{name: files(name) for name in ("proc", "processes", "web")},
            "licences": licences,
        },
    }


def _write_canonical(system: System, out: Path) -> str:
    """Write the canonical tar of a built system; return its SHA-256.

    Errors: SystemCorruptError if it differs from that of the build.
    """
    holes = system.facts.get("holes")
    spool = out.with_suffix(".spool")
    with spool.open("wb") as file, tempfile.TemporaryFile() as errors:
        process, connection = spawn_mapped(
            ["exec", "tar", "--create", "--numeric-owner", "--format=gnu", "--file=-", "."],
            find_idmap(), cwd=system.rootfs, stdin=subprocess.DEVNULL, stdout=file, stderr=errors,
        )  # fmt: skip
        with connection, process:
            process.wait()
        errors.seek(0)
        if process.returncode:
            said = errors.read(2000).decode("utf-8", "replace")
            raise SandboxError(f"some files of {system.path} cannot be read: {said}")
    offsets: dict[str, int] = {}
    with tarfile.open(spool, encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            name = "/".join(name_components(member.name))
            origin = "/".join(name_components(member.linkname)) if member.islnk() else ""
            offsets[name] = offsets[origin] if origin else member.offset_data
    entries = [
        image.ImageEntry(
            row.path[1:], row.mode & 0o170000, row.mode & 0o7777, row.uid, row.gid, row.mtime,
            target=row.target, size=row.size, offset=offsets.get(row.path[1:], 0),
            holes=row.path[1:] in (holes or ()),
        )
        for row in system.index.values()
    ]  # fmt: skip
    with spool.open("rb") as base, out.open("wb") as canonical:
        digest = image.write_tar(entries, base, canonical)
    spool.unlink()
    if digest != system.facts["rootfs_sha256"]:
        why = "its files differ from the build" if holes is not None else "an earlier version of "
        why += "" if holes is not None else "ShIOEnv built it"
        raise SystemCorruptError(
            f"the system {system.name} cannot be exported: {why}",
            hint=f"shioenv system remove {system.name} && shioenv system build {system.name}",
        )
    return digest


def _licences(system: System) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the licences of the system's packages by name, and their copyright files by path.

    They are read from the locked packages in the cache. A system without a lock has none.
    """
    text = lock_text(system.name) if system.name in declared_names() else None
    if text is None:
        return {}, {}
    store = cache_directory() / "packages"
    packages = parse_lock(text, f"{system.name}.lock").files
    with ThreadPoolExecutor(4) as pool:
        found = dict(
            zip(packages, pool.map(partial(_copyright, store=store), packages), strict=True)
        )
    texts = {f"usr/share/doc/{one.name}/copyright": data for one, data in found.items() if data}
    manifest = {
        one.name: {
            "version": one.version,
            "package_sha256": one.sha256,
            "copyright_sha256": hashlib.sha256(data).hexdigest() if data else None,
            "licences": _named(data),
        }
        for one, data in found.items()
    }
    return manifest, texts


def _copyright(package: Package, store: Path) -> bytes | None:
    """Return a package's copyright file; None if it has none or the package is not in the cache.

    Some packages have a link to another package's directory instead.
    """
    file = store / f"{package.sha256}.deb"
    if not file.exists():
        return None
    wanted = f"./usr/share/doc/{package.name}/copyright"
    command = ["dpkg-deb", "--fsys-tarfile", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if member.name == wanted and member.isreg():
                    content = archive.extractfile(member)
                    process.kill()
                    return content.read() if content else None
    return None


def _named(text: bytes | None) -> list[str]:
    """Return the licence names of a machine-readable copyright file."""
    lines = re.findall(rb"^License:[ \t]*(\S.*?)\s*$", text or b"", re.MULTILINE)
    return sorted({line.decode("utf-8", "replace") for line in lines})


def _write_texts(texts: Mapping[str, bytes], system: System, out: Path) -> None:
    moment = image.base_time(system.declaration)
    with tarfile.open(out, "w") as archive:
        for name in sorted(texts):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(texts[name]), moment
            archive.addfile(member, io.BytesIO(texts[name]))


def exported(config: Mapping[str, Any], source: Path) -> ExportedSystem | None:
    """Return the system's part of an image's configuration, or None if it has none.

    Errors: RootfsTarError if no export could have written the part.
    """
    if KEY not in config:
        return None
    try:
        part = msgspec.convert(config[KEY], ExportedSystem)
        names = [*part.proc, *part.processes, *part.web]
        if part.schema != 1:
            raise ValueError(f"its layout {part.schema} is of another version of ShIOEnv")
        if bad := [name for name in names if not name or "/".join(_steps(name)) != name]:
            raise ValueError(f"it has a file with the invalid name {bad[0]!r}")
        for files in (part.proc, part.processes, part.web):
            for text in files.values():
                text.encode("latin-1")
    except (msgspec.ValidationError, ValueError) as error:
        raise RootfsTarError(f"{source} is not a valid export of a system: {error}") from error
    return part


def _steps(name: str) -> list[str]:
    return [step for step in name_components(name) if step != ".." and "\0" not in step]


def install_exported(
    part: ExportedSystem, rootfs: Path, name: str, source: str, digest: str, report: Progress
) -> str:
    """Install an exported system called `name`, and return its digest.

    `rootfs` is the decompressed first layer. The caller holds the build lock. Errors:
    RootfsTarError if `rootfs` is not a canonical tar, or if its digest differs from the exported
    one or from `digest`.
    """

    def check(made: str) -> None:
        if made != part.digest or digest not in ("", made):
            raise RootfsTarError(
                f"the file's system has the digest {made}, and {digest or part.digest} was expected"
            )

    declaration = replace(parse_declaration(part.declaration, source="the file"), name=name)
    _refuse_other_tars(rootfs)
    proc, processes, web = (
        {path: text.encode("latin-1") for path, text in files.items()}
        for files in (part.proc, part.processes, part.web)
    )
    made = building.SystemFiles(proc, processes, web, part.answers)
    return building.build_from(
        declaration, part.declaration, made, rootfs, source, cache_directory(), check, report
    )


def _refuse_other_tars(path: Path) -> None:
    """Raise RootfsTarError unless a tar is canonical, as `image.write_tar` writes it."""
    try:
        entries = list(building.read_canonical(path))
        kinds = {entry.path: entry.kind for entry in entries}
        with path.open("rb") as content, tempfile.TemporaryFile() as out:
            written = image.write_tar(entries, content, out)
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        raise RootfsTarError(f"the first layer cannot be read: {error}") from error
    in_order = list(kinds) == sorted(kinds, key=_order)
    inside = all(
        ".." not in one.split("/")
        and (not one or kinds.get(one.rpartition("/")[0]) == stat.S_IFDIR)
        for one in kinds
    )
    if written != sha256_of(path) or len(kinds) != len(entries) or not (in_order and inside):
        raise RootfsTarError("the first layer is not the canonical tar of a system")


def _order(path: str) -> list[bytes]:
    return [part.encode("utf-8", "surrogateescape") for part in path.split("/")]
