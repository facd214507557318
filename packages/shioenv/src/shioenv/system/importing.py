"""Import systems from a tarball or a container image, with a declared machine profile."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from shioenv.errors import OutputExistsError, RootfsTarError, UsageError
from shioenv.files.durable import cache_directory
from shioenv.system import build as building
from shioenv.system import image
from shioenv.system.bootstrap import Progress, os_release
from shioenv.system.build import PROGRAMS, TarBase
from shioenv.system.declare import (
    SystemDeclaration,
    declared_names,
    load_declaration,
    parse_declaration,
    read_text,
)
from shioenv.system.home import load_home
from shioenv.system.oci import MOST_BYTES, find_image, is_layout, name_components, write_flat
from shioenv.system.store import System, find_system
from shioenv.system.values import SystemName, checked

NEEDED = {"uname": PROGRAMS["uname"]}
"""Programs that an imported system must contain in addition to bash. Without `ip` or `nft`, network
or firewall changes are not recorded (`NamespaceSandbox`)."""

UNREAD = {
    "ip": "links, addresses and routes are not read: it has no ip",
    "nft": "rules of the firewall are not read: it has no nft",
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
    name: str,
    source: str | Path,
    *,
    profile: str | None = None,
    report: Progress = building.silent,
) -> ImportedSystem:
    """Build a system called `name` from a tarball or from the directory of an OCI layout.

    The new system takes its machine, accounts, session and home tree from `profile`, a shipped
    system or a TOML file (default: `debian-12`). The distribution is read from the tarball's
    `os-release`.

    Errors: UsageError for an invalid name; OutputExistsError for an existing one. RootfsTarError
    for a damaged source, one without Bash or `uname`, or one with paths outside its root. Also
    BuildToolError, SystemBuildError, SystemStorageError, HostError, and the errors of
    `load_declaration` and `load_home`.
    """
    _check_free(name)
    source = Path(source).absolute()
    base = load_declaration(profile)
    text = read_text(profile)
    tree = load_home(base)
    cache = cache_directory()
    with (
        building.system_storage_errors(cache),
        building.build_lock(cache, report),
        tempfile.TemporaryDirectory(prefix=building.IMPORTING, dir=cache) as scratch,
    ):
        _check_free(name)  # again: another build may have finished in the meantime
        plain, origin = _plain(source, Path(scratch), base, report)
        entries = image.read_base(plain, image.base_time(base))
        with plain.open("rb") as content:
            said = _release(entries, content)
        text = _renamed(text, name, origin, said)
        declaration = parse_declaration(text, source=f"{name}.toml")
        if declaration.name != name:
            raise UsageError(
                f"{profile} does not give its name on a line of its own",
                hint='its first line of the kind name = "..." is the system\'s name',
            )
        building.build(
            declaration,
            text,
            tree=tree,
            cache=cache,
            tar=TarBase(plain, NEEDED),
            fresh=False,
            report=report,
        )
        left_out = LeftOut(tuple(_counted(plain, entries)))
    system = find_system(name)
    return ImportedSystem(system, left_out)


def _check_free(name: str) -> None:
    problems: list[str] = []
    checked(SystemName, name, "the name", problems)
    if problems:
        raise UsageError(problems[0], hint="such as my-debian")
    cache = cache_directory()
    with building.system_storage_errors(cache):
        taken = name in declared_names() or (cache / "names" / f"{name}.json").exists()
    if taken:
        raise OutputExistsError(
            f"a system is called {name} already",
            hint=f"choose another name; or first: shioenv system remove {name}",
        )


def _plain(
    source: Path, scratch: Path, base: SystemDeclaration, report: Progress
) -> tuple[Path, str]:
    """Convert the source to an uncompressed tarball; return it with a description of the source."""
    if not source.is_dir():
        (scratch / "tar").mkdir()
        plain, digest = building.plain_tar(source, scratch / "tar", MOST_BYTES)
        _refuse_archives(source, plain)
        return plain, f"imported from a tarball, {digest.removeprefix('tar:')[:16]}"
    if not is_layout(source):
        raise RootfsTarError(
            f"{source} is a directory, and no OCI layout",
            hint=f"of a root directory: tar -C {source} -cf machine.tar . makes a tarball",
        )
    found = find_image(source, base.distribution.architecture)
    layers: list[Path] = []
    unpacked = 0
    for number, digest in enumerate(found.layers):
        report(f"unpacking layer {number + 1} of {len(found.layers)}")
        place = scratch / f"layer{number}"
        place.mkdir()
        blob = source / "blobs" / "sha256" / digest.removeprefix("sha256:")
        layers.append(building.plain_tar(blob, place, MOST_BYTES - unpacked)[0])
        unpacked += layers[-1].stat().st_size
        if unpacked > MOST_BYTES:
            raise RootfsTarError(f"{source} has layers of more than {MOST_BYTES:,} bytes")
    write_flat(layers, scratch / "flat.tar")
    return scratch / "flat.tar", f"imported from an image, {found.digest}"


def _refuse_archives(source: Path, plain: Path) -> None:
    """Raise RootfsTarError for an archive of an image instead of a root filesystem."""
    try:
        with tarfile.open(plain, "r:") as archive:
            names = {member.name.removeprefix("./") for member in islice(archive, 2000)}
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return  # `read_base` reports the error
    if "oci-layout" in names:
        hint = f"unpack it: mkdir layout && tar -xf {source} -C layout; then import layout"
        raise RootfsTarError(f"{source} is the archive of an OCI layout", hint=hint)
    if "manifest.json" in names and not names & {"bin", "usr", "etc"}:
        hint = "docker export CONTAINER, or skopeo copy docker-archive:FILE oci:DIR"
        raise RootfsTarError(f"{source} is what `docker save` writes: layers of images", hint=hint)


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

    Files with extended attributes are counted as well, since these attributes are dropped.
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
