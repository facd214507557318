"""Import systems from a tarball or a container image, with a declared machine profile."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shioenv.errors import OutputExistsError, RootfsTarError, UsageError
from shioenv.files.durable import cache_directory
from shioenv.system import build as building
from shioenv.system import image
from shioenv.system.bootstrap import Progress, os_release
from shioenv.system.build import PROGRAMS, TarBase
from shioenv.system.contents import damage, read_json
from shioenv.system.declare import (
    declared_names,
    load_declaration,
    parse_declaration,
    read_text,
)
from shioenv.system.exporting import exported, install_exported
from shioenv.system.oci import (
    MOST_BYTES,
    Image,
    find_image,
    is_layout,
    name_components,
    plain_tar,
    unpack_layout,
    write_flat,
)
from shioenv.system.packages import download, lock_text, parse_lock
from shioenv.system.store import System, find_system
from shioenv.system.values import SystemName, checked

_LARGEST_EXPORT = 4 << 30

NEEDED = {"uname": PROGRAMS["uname"]}
"""Programs that an imported system must contain in addition to bash. Without `ip` or `nft`, network
or firewall changes are not recorded (`NamespaceSandbox`)."""

UNREAD = {
    "ip": "links, addresses and routes (the system has no ip)",
    "nft": "firewall rules (the system has no nft)",
}
"""Messages on changes that are not recorded, by the program that an imported system lacks."""


def unread(system: System) -> tuple[str, ...]:
    """Return a message for each kind of change that a missing program leaves unrecorded."""
    return tuple(line for program, line in UNREAD.items() if program not in system.programs)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Counts of the files of a tarball that were not imported, by kind."""

    counts: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ", ".join(f"{what} ({number:,})" for what, number in self.counts) or "nothing"


@dataclass(frozen=True, slots=True)
class ImportedSystem:
    """An imported system, with the files of its tarball that were not imported."""

    system: System
    left_out: LeftOut


def import_system(
    name: str | None,
    source: str | Path,
    *,
    profile: str | None = None,
    digest: str = "",
    pinned: bool = False,
    report: Progress = building.silent,
) -> ImportedSystem:
    """Build a system called `name` from a tarball, an OCI layout or its archive, or an export.

    An exported system (`export_system`) keeps its digest, and by default its name. `digest` is the
    expected digest; with `pinned`, it may be missing only if a lock names it. The name of a shipped
    system is accepted only if that system's lock has this digest.

    Any other system takes its machine, accounts, session and home tree from `profile`, a shipped
    system or a TOML file (default: `debian-12`). The distribution is read from the tarball's
    `os-release`.

    Errors: UsageError for an invalid name; OutputExistsError for an existing one. RootfsTarError
    for a damaged source, one without Bash or `uname`, or one with paths outside its root. Also
    BuildToolError, SystemBuildError, SystemStorageError, HostError, and the errors of
    `load_declaration` and `load_home`.
    """
    if name is not None:
        _check_name(name)
    source = Path(source).absolute()
    base = load_declaration(profile)
    cache = cache_directory()
    with (
        building.system_storage_errors(cache),
        building.build_lock(cache, report),
        tempfile.TemporaryDirectory(prefix=building.IMPORTING, dir=cache) as directory,
    ):
        scratch = Path(directory)
        layout = source if source.is_dir() else scratch / "layout"
        found = None
        if source.is_dir() or _is_archive(source, layout):
            if not is_layout(layout):
                raise RootfsTarError(
                    f"the directory {source} is not an OCI layout",
                    hint=f"for a root directory, make a tarball: tar -C {source} -cf machine.tar .",
                )
            found = find_image(layout, base.distribution.architecture)
        part = exported(found.config, source) if found else None
        if found and part:
            name = name or part.name
            if pinned and not digest and name not in declared_names():
                raise UsageError(
                    f"the expected digest of {name} is unknown", hint="give --digest DIGEST"
                )
            if _is_there(name, part.digest):
                report(f"{name} is already built with this digest")
            else:
                blob = layout / "blobs" / "sha256" / found.layers[0].removeprefix("sha256:")
                plain = plain_tar(blob, scratch, MOST_BYTES)[0]
                install_exported(part, plain, name, f"export:{found.digest}", digest, report)
            left_out = LeftOut(())
        elif name is None or pinned:
            raise UsageError(
                f"{source} is not an exported system",
                hint="shioenv system import NAME SOURCE imports any other",
            )
        else:
            _check_free(name)
            left_out = _build_from_foreign(name, source, layout, found, profile, scratch, report)
    return ImportedSystem(find_system(name), left_out)


def pull_system(
    source: str,
    *,
    digest: str = "",
    name: str | None = None,
    report: Progress = building.silent,
) -> System:
    """Import an exported system from an http address or a file, and check its digest.

    Without `digest`, only a shipped system with a lock is accepted, because a lock names the
    digest. Errors: RootfsTarError if the address serves nothing or too much, and those of
    `import_system`.
    """
    if digest and not re.fullmatch("[0-9a-f]{64}", digest):
        raise UsageError(
            f"invalid digest {digest!r}", hint="give 64 hex digits, as `system show` prints"
        )
    with ExitStack() as stack:
        file: str | Path = source
        if re.match("https?://", source):
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="shioenv-pull-"))
            file = Path(scratch) / "system.tar"
            report(f"downloading {source}")
            download(source, file, _LARGEST_EXPORT)
        return import_system(name, file, digest=digest, pinned=True, report=report).system


def _is_archive(source: Path, layout: Path) -> bool:
    try:
        return unpack_layout(source, layout)
    except OSError as error:
        if error.filename == str(source):
            raise RootfsTarError(f"{source} cannot be read: {error.strerror}") from error
        raise


def _is_there(name: str, digest: str) -> bool:
    """Whether the exported system is built under this name.

    Errors: OutputExistsError if another build has this name, or if a shipped system with this name
    has another digest.
    """
    _check_name(name)
    hint = f"choose another name: shioenv system import {name}-{digest[:8]} FILE"
    locked = lock_text(name) if name in declared_names() else None
    if name in declared_names() and (
        locked is None or parse_lock(locked, f"{name}.lock").digest != digest
    ):
        raise OutputExistsError(f"the shipped system {name} has another digest", hint=hint)
    try:
        named = read_json(cache_directory() / "names" / f"{name}.json")
        there = str(named["digest"])
    except (OSError, ValueError, KeyError):
        return False
    if there == digest:
        return damage(cache_directory() / "systems" / digest) is None
    if locked is None:
        raise OutputExistsError(f"a system {name} already exists", hint=hint)
    return False


def _build_from_foreign(
    name: str,
    source: Path,
    layout: Path,
    found: Image | None,
    profile: str | None,
    scratch: Path,
    report: Progress,
) -> LeftOut:
    """Build a system from a tarball or an image, with the profile's machine and accounts."""
    base = load_declaration(profile)
    tree = building.load_trees(base)
    if found:
        plain = _flatten(layout, found, scratch, report)
        origin = f"imported from an image, {found.digest}"
    else:
        (scratch / "tar").mkdir()
        plain, digest = plain_tar(source, scratch / "tar", MOST_BYTES)
        origin = f"imported from a tarball, {digest.removeprefix('tar:')[:16]}"
    entries = image.read_base(plain, image.base_time(base))
    with plain.open("rb") as content:
        said = _release(entries, content)
    text = _renamed(read_text(profile), name, origin, said)
    declaration = parse_declaration(text, source=f"{name}.toml")
    if declaration.name != name:
        raise UsageError(
            f"{profile} does not define its name on a separate line",
            hint='begin the file with a line name = "..."',
        )
    building.build(
        declaration,
        text,
        tree=tree,
        cache=cache_directory(),
        base=TarBase(plain, NEEDED),
        report=report,
    )
    return LeftOut(tuple(_counted(plain, entries)))


def _check_name(name: str) -> None:
    problems: list[str] = []
    checked(SystemName, name, "the name", problems)
    if problems:
        raise UsageError(problems[0], hint="such as my-debian")


def _check_free(name: str) -> None:
    cache = cache_directory()
    if name in declared_names() or (cache / "names" / f"{name}.json").exists():
        raise OutputExistsError(
            f"a system {name} already exists",
            hint=f"choose another name; or first: shioenv system remove {name}",
        )


def _flatten(layout: Path, found: Image, scratch: Path, report: Progress) -> Path:
    """Flatten the layers of an image into one tarball."""
    layers: list[Path] = []
    unpacked = 0
    for number, digest in enumerate(found.layers):
        report(f"unpacking layer {number + 1} of {len(found.layers)}")
        place = scratch / f"layer{number}"
        place.mkdir()
        blob = layout / "blobs" / "sha256" / digest.removeprefix("sha256:")
        layers.append(plain_tar(blob, place, MOST_BYTES - unpacked)[0])
        unpacked += layers[-1].stat().st_size
        if unpacked > MOST_BYTES:
            raise RootfsTarError(f"the layers have more than {MOST_BYTES:,} bytes")
    write_flat(layers, scratch / "flat.tar")
    return scratch / "flat.tar"


def _release(entries: dict[str, image.ImageEntry], base: image.BaseStream) -> dict[str, str]:
    """Return the values of the root filesystem's os-release file; empty if it has none."""
    for path in ("usr/lib/os-release", "etc/os-release"):
        if path in entries and not entries[path].target and entries[path].size < 1 << 16:
            return os_release(image.content(entries[path], base).decode("utf-8", "replace"))
    return {}


def _renamed(text: str, name: str, origin: str, said: dict[str, str]) -> str:
    """Return the profile's text with the new system's name, source and distribution."""
    family = f"{said.get('ID', 'linux')}-{said.get('VERSION_ID', '')}".lower()
    new = {"name": name, "title": origin}
    new["os_family"] = re.sub(r"[^a-z0-9.-]", "-", family)[:64].strip("-.") or "linux"
    if said.get("ID") in {"debian", "ubuntu"}:
        new["family"] = said["ID"]
        if re.fullmatch(r"[a-z]{2,32}", said.get("VERSION_CODENAME", "")):
            new["suite"] = said["VERSION_CODENAME"]
    for key, value in new.items():
        text = re.sub(rf'(?m)^{key}\s*=\s*"[^"\n]*"', f'{key} = "{value}"', text, count=1)
    return text


def _counted(plain: Path, entries: dict[str, image.ImageEntry]) -> Iterator[tuple[str, int]]:
    """Count the files of an uncompressed tarball that are not in `entries`, by kind.

    Files with extended attributes are counted as well, because their attributes are dropped.
    """
    counts: Counter[str] = Counter()
    with tarfile.open(plain, "r:") as archive:
        for member in archive:
            path = "/".join(name_components(member.name))
            if any(key.startswith("SCHILY.xattr.") for key in member.pax_headers):
                counts["files' extended attributes"] += 1
            if path in entries:
                continue
            top = path.split("/")[0]
            if member.isdev():
                counts["devices and pipes"] += 1
            elif top in {"dev", "proc", "sys", "run", "tmp"}:
                counts[f"files in /{top}"] += 1
            else:
                counts["logs, caches and files of the builder"] += 1
    yield from sorted(counts.items())
