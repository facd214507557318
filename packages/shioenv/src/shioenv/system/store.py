"""Built systems: find, build, list and remove them, and inspect their pristine state."""

from __future__ import annotations

import gzip
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shioenv.errors import (
    ShioenvError,
    SystemCorruptError,
    SystemNotBuiltError,
    SystemStorageError,
    UnknownSystemError,
    UsageError,
    did_you_mean,
)
from shioenv.files.durable import cache_directory
from shioenv.system import build as building
from shioenv.system.answers import Answers
from shioenv.system.bootstrap import Packages, Progress
from shioenv.system.contents import current_files, damage, read_contents, read_json, resolve
from shioenv.system.declare import (
    DEFAULT_SYSTEM,
    SystemDeclaration,
    declared_names,
    load_declaration,
    parse_declaration,
    read_text,
    systems_directory,
)
from shioenv.system.idmap import find_idmap, run_mapped
from shioenv.system.packages import lock_text, parse_lock
from shioenv.system.templates import templates_directory
from shioenv.system.values import SystemName, checked
from shioenv.text import short_repr

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
"""Files of the image over which device nodes are mounted."""

_KINDS = {
    tarfile.REGTYPE: stat.S_IFREG,
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
    tarfile.FIFOTYPE: stat.S_IFIFO,
}


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The `lstat` attributes of one path of the pristine system, with the system's own ids."""

    path: str
    """Absolute path, with undecodable bytes as lone surrogates (`os.fsencode` restores them)."""
    mode: int
    """Type and permission bits, as `st_mode`."""
    uid: int
    gid: int
    size: int
    """Size in bytes; 4096 for every directory, independent of the host's file system."""
    links: int
    mtime: int
    """Modification time, seconds since 1970."""
    target: str
    """Target of a symbolic link, else empty."""


@dataclass(frozen=True)
class System:
    """A built system.

    Systems with equal digests behave identically on every host file system. Only the host's kernel
    can cause differences. Before Linux 6.16, these include the order of directories, sizes and
    access times in /usr (`LowerForm`).
    """

    name: str
    digest: str
    """SHA-256 (hex) over every file, the machine profile and the session."""
    path: Path
    """The directory of `rootfs/`, `proc/`, the index and the other files of the build."""
    declaration: SystemDeclaration

    def __repr__(self) -> str:
        return short_repr(self, {"name": self.name, "digest": self.digest[:16]})

    @property
    def rootfs(self) -> Path:
        """The directory of the root filesystem, owned by the mapped ids."""
        return self.path / "rootfs"

    @property
    def proc_files(self) -> Path:
        """The directory of files to bind-mount over /proc, at the same relative paths."""
        return self.path / "proc"

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The facts recorded by the build (`system.json`). Errors: SystemCorruptError."""
        try:
            return read_json(self.path / "system.json")
        except (OSError, ValueError) as error:
            raise _corrupt(self.name, self.path, error) from error

    @property
    def tree_sums(self) -> Mapping[str, str]:
        """Checksums of the tree's names and attributes, for each `LowerForm`.

        Empty for systems built before these checksums were recorded.
        """
        return MappingProxyType(dict(self.facts.get("tree_sums", {})))

    @property
    def packages(self) -> Mapping[str, str]:
        """Versions by package name."""
        return MappingProxyType(dict(self.facts["packages"]))

    @property
    def host_clock(self) -> bool:
        """Whether programs see the host's time, which differs between runs."""
        return self.answers.clock == "host"

    @property
    def source(self) -> str:
        """The source of the base: `mmdebstrap:KEY` or `tar:SHA256`."""
        return str(self.facts["source"])

    @property
    def answers(self) -> Answers:
        """The time, kernel, processor and disk usage that the system's programs see."""
        return Answers(**self.facts["answers"])

    @property
    def users(self) -> Mapping[str, int]:
        """User ids by name, for all users."""
        return MappingProxyType(dict(self.facts["users"]))

    @property
    def groups(self) -> Mapping[str, int]:
        """Group ids by name, for all groups."""
        return MappingProxyType(dict(self.facts["groups"]))

    def check(self) -> None:
        """Check the attributes of every file. Errors: SystemCorruptError for a damaged system."""
        damaged = damage(self.path)
        if damaged is not None:
            raise _corrupt(self.name, self.path, damaged)

    def differences(self) -> Iterator[str]:
        """Yield every difference from the system as built, as "PATH: difference".

        Compares the kind, permissions, owner, time and content of every file. Reading all files
        takes a second or two. Errors: SystemCorruptError if the build's digests cannot be read.
        HostError if this host does not allow reading as the system's root. SandboxError if such a
        read fails.
        """
        try:
            digests = dict(read_contents(self.path))
        except (OSError, ValueError, EOFError) as error:
            raise _corrupt(self.name, self.path, error) from error
        index = dict(self.index)
        for name, member, digest in current_files(self.path):
            top, _, inside = name.partition("/")
            if digests.pop(name, "") != digest:
                yield f"{name}: changed content"
            if top != "rootfs":
                continue
            entry = index.pop(f"/{inside}", None)
            if entry is None:
                yield f"{name}: added"
            elif (member.mode, member.uid, member.gid, int(member.mtime)) != (
                stat.S_IMODE(entry.mode),
                entry.uid,
                entry.gid,
                entry.mtime,
            ):
                yield f"{name}: changed permissions, owner or time"
            elif not member.islnk() and (
                _KINDS.get(member.type) != stat.S_IFMT(entry.mode)
                or member.linkname != entry.target
            ):
                yield f"{name}: changed kind of file, or link"
        yield from (f"rootfs{path}: missing" for path in index)
        yield from (f"{name}: missing" for name in digests if not name.startswith("rootfs/"))

    def read(self, path: str) -> bytes:
        """Return the content of a file of the root filesystem, by its absolute path.

        A file that this user may not read is read as the system's root. Errors: OSError if the file
        does not exist or cannot be read; HostError if this host does not allow mapped ids.
        """
        file = self.rootfs / path.lstrip("/")
        try:
            return file.read_bytes()
        except PermissionError:
            command = ["cat", f"./{path.lstrip('/')}"]
            done = run_mapped(command, idmap=find_idmap(), cwd=self.rootfs)
            if done.returncode:
                raise
            return done.stdout

    def content(self, path: str) -> bytes | None:
        """Return the content of a regular file, by its absolute path; symbolic links are followed.

        Returns None if the path does not resolve to a regular file, or if the file cannot be read.
        Errors: HostError if this host does not allow reading as the system's root.
        """
        entry = self.index.get(self.resolve(path) or "")
        if entry is None or not stat.S_ISREG(entry.mode):
            return None
        try:
            return self.read(entry.path)
        except OSError:
            return None

    def shown_in_proc(self) -> dict[str, bytes]:
        """Return the content of the declared files of /proc by absolute path, sorted."""
        files = (file for file in sorted(self.proc_files.rglob("*")) if file.is_file())
        return {f"/proc/{file.relative_to(self.proc_files)}": file.read_bytes() for file in files}

    @cached_property
    def index(self) -> Mapping[str, IndexEntry]:
        """The entries of the root filesystem by path, sorted; loaded on first use."""
        try:
            with gzip.open(self.path / "index.json.gz") as packed:
                rows = json.loads(packed.read())
            return MappingProxyType({row[0]: IndexEntry(*row) for row in rows})
        except (OSError, ValueError, TypeError, EOFError) as error:
            raise _corrupt(self.name, self.path, error) from error

    def resolve(self, path: str) -> str | None:
        """Return `path` with all symbolic links resolved, or None if it does not exist."""

        def target(place: str) -> str | None:
            entry = self.index.get(place)
            return None if entry is None else entry.target

        return resolve(path, target)

    @cached_property
    def programs(self) -> frozenset[str]:
        """The names of all programs in the session's PATH."""
        path = self.declaration.session.environment.get("PATH", building.DEFAULT_PATH)
        places = {self.resolve(directory) for directory in path.split(":") if directory}
        names = set()
        for entry in self.index.values():
            directory, _, name = entry.path.rpartition("/")
            if (directory or "/") in places:
                found = self.index.get(self.resolve(entry.path) or "")
                if found is not None and stat.S_ISREG(found.mode) and found.mode & 0o111:
                    names.add(name)
        return frozenset(names)

    def is_directory(self, path: str) -> bool:
        """Whether `path` resolves to a directory."""
        entry = self.index.get(self.resolve(path) or "")
        return entry is not None and stat.S_ISDIR(entry.mode)

    def beneath(self, directory: str) -> Iterator[IndexEntry]:
        """Return the entries of a directory and of everything beneath it, in index order."""
        prefix = directory.rstrip("/") + "/"
        return (one for path, one in self.index.items() if f"{path}/".startswith(prefix))

    @property
    def profile(self) -> Mapping[str, Any]:
        """The context fields, by name, that are known without executing anything.

        They come from the machine profile and from the session's initial state.
        """
        machine, session = self.declaration.machine, self.declaration.session
        architectures = {"amd64": "x86_64", "arm64": "aarch64"}
        architecture = self.declaration.distribution.architecture
        return {
            "arch": architectures.get(architecture, architecture),
            "kernel": ".".join(machine.kernel.release.split(".")[:2]),
            "disk": _megabytes(machine.disk),
            "cpus": str(machine.cpu.count),
            "mem": _megabytes(machine.memory),
            "hostname": machine.hostname,
            "os_family": self.declaration.distribution.os_family,
            "user": session.user,
            "groups": list(self.facts["session_groups"]),
            "env": dict(session.environment),
            "umask": f"{session.umask:04o}",
        }


def _megabytes(size: int) -> str:
    return f"{size >> 20}M"


def _corrupt(name: str, path: Path, error: Exception | str) -> SystemCorruptError:
    return SystemCorruptError(
        f"the built system {name} in {path} is damaged: {error}",
        hint=f"rebuild it: shioenv system build {name}",
    )


def find_system(name: str | None = None) -> System:
    """Return the built system of this name, by default `debian-12`.

    `name` may be the name of a shipped system or of a system built from another TOML file. It may
    also be the path of such a file. Raises:

    - UnknownSystemError, which suggests the nearest name: no system has this name.
    - SystemNotBuiltError: the system is declared but not built, its files are missing, or it was
      built from another version of its declaration.
    - SystemCorruptError: the files that describe the build are damaged.
    - SystemStorageError: this user may not read the files.
    - UsageError: `name` is not a string.

    Raises SystemDeclarationError under the same conditions as `load_declaration`.
    """
    if not isinstance(name, str | None):
        raise UsageError(
            f"the name of a system must be a text, got {name!r}",
            hint=f"such as {DEFAULT_SYSTEM!r}; list all: shioenv system list",
        )
    name = name or DEFAULT_SYSTEM
    cache = cache_directory()
    with building.system_storage_errors(cache):
        if name.endswith(".toml") or name in declared_names():
            declaration, text = load_declaration(name), read_text(name)
            return _open(declaration.name, cache, current=(declaration, text), asked=name)
        if name in (known := _known_names(cache)):
            return _open(name, cache, current=None, asked=name)
    raise UnknownSystemError(f"unknown system {name!r}", hint=did_you_mean(name, known))


_fingerprints: dict[tuple[str, int], str] = {}
"""Fingerprints by text of the declaration and state of the shipped files. Computing one takes half
of the time of opening a system."""


def _fingerprint(declaration: SystemDeclaration, text: str, asked: str) -> str:
    """Return the fingerprint of a declaration. That of a shipped one is kept."""
    if asked not in declared_names():
        return building.fingerprint(declaration, text)
    files: list[tuple[object, ...]] = []
    for directory in (systems_directory(), templates_directory()):
        for entries, _, names in os.walk(str(directory)):
            paths = [f"{entries}/{name}" for name in names if not name.endswith(".pyc")]
            states = zip(paths, map(os.stat, paths), strict=True)
            files += [(path, is_.st_ino, is_.st_size, is_.st_mtime_ns) for path, is_ in states]
    key = text, hash(tuple(files))
    if key not in _fingerprints:
        _fingerprints[key] = building.fingerprint(declaration, text)
    return _fingerprints[key]


def _known_names(cache: Path) -> set[str]:
    """Return the names of all declared and built systems. Errors: OSError."""
    return {*declared_names(), *(path.stem for path in _name_files(cache))}


def _name_files(cache: Path) -> list[Path]:
    """Return the `names/NAME.json` files, sorted. Errors: OSError if they cannot be listed."""
    try:
        listed = sorted((cache / "names").iterdir())
    except FileNotFoundError:
        return []
    return [path for path in listed if path.suffix == ".json" and not path.name.startswith(".")]


def _open(
    name: str, cache: Path, *, current: tuple[SystemDeclaration, str] | None, asked: str
) -> System:
    """Return the built system `name`.

    `current` is the current declaration with its text. None: the declaration stored by the build is
    used.
    """
    hint = f"build it: shioenv system build {asked}"
    try:
        named = read_json(cache / "names" / f"{name}.json")
        digest, built_from = str(named["digest"]), str(named["fingerprint"])
    except FileNotFoundError:
        raise SystemNotBuiltError(f"the system {name} has not been built", hint=hint) from None
    except (PermissionError, NotADirectoryError):
        raise
    except (OSError, ValueError, KeyError) as error:
        raise _corrupt(name, cache / "names" / f"{name}.json", error) from error
    path = cache / "systems" / digest
    if not (path / "system.json").exists() or not (path / "rootfs").is_dir():
        if current is None:
            hint = "rebuild it from its TOML file: shioenv system build FILE.toml"
        raise SystemNotBuiltError(f"the files of the system {name} are missing", hint=hint)
    if current is None:
        try:
            text = (path / "declaration.toml").read_text(encoding="utf-8")
        except OSError as error:
            raise _corrupt(name, path, error) from error
        declaration = parse_declaration(text, source=str(path / "declaration.toml"))
        declaration = replace(declaration, name=name)
    else:
        declaration, text = current
        if _fingerprint(declaration, text, asked) != built_from:
            raise SystemNotBuiltError(
                f"the declaration of {name} has changed since it was built", hint=hint
            )
        of = name if name in declared_names() else asked
        locked = None if str(named["source"]).startswith("tar:") else lock_text(of)
        if locked and parse_lock(locked, f"{asked}.lock").digest != digest:
            raise SystemNotBuiltError(
                f"the system {name} was built with other packages than its lock names",
                hint=hint,
            )
    return System(name, digest, path, declaration)


def build_system(
    name: str | None = None,
    *,
    rootfs_tar: str | Path | None = None,
    called: str | None = None,
    fresh: bool = False,
    packages: str | Path | None = None,
    unlocked: bool = False,
    report: Progress = building.silent,
) -> System:
    """Return the system of this name, building it if necessary.

    A system with a lock gets exactly the locked packages. They come from the directory `packages`
    if it is given, else from the mirrors or the lock's archives. `unlocked` installs the packages
    that the mirrors serve now; the system then has another name (default: its name and
    `-unlocked`).

    `rootfs_tar` is a tarball (plain, gzip, bzip2, xz or zstd) to use as the base, instead of one
    made by mmdebstrap. In both cases, the home tree, accounts and machine profile are added.
    `called` is the name of a system built from a tarball; the default is the declaration's name.
    `fresh` installs the packages again. `report` receives one line of progress per call.

    Several processes may call this concurrently. An error or interrupt leaves no partial build. An
    existing system of the same name from another source is not replaced.

    Raises UnknownSystemError, SystemDeclarationError, SystemBuildError, RootfsTarError and
    SystemStorageError. Raises UsageError for an invalid system name. Raises HostError (exit status
    3) if this host lacks a required program or permission.
    """
    name = name or DEFAULT_SYSTEM
    declaration, text = load_declaration(name), read_text(name)
    if unlocked and called is None:
        called = f"{declaration.name}-unlocked"
    if packages and (rootfs_tar or unlocked):
        raise UsageError("--packages gives locked packages", hint="leave the other option out")
    if called is not None:
        _check_name(called, other=unlocked or rootfs_tar is not None)
        declaration = replace(declaration, name=called)
    tree = building.load_trees(declaration)  # a faulty tree is reported before downloads
    cache = cache_directory()
    shipped = declaration.name in declared_names()
    locked = None if unlocked else lock_text(declaration.name if shipped else name)
    base: building.TarBase | Packages
    if rootfs_tar is not None:
        base = building.TarBase(Path(rootfs_tar).absolute())
    else:
        lock = parse_lock(locked, f"{name}.lock") if locked else None
        base = Packages(lock, Path(packages) if packages else None, fresh or unlocked)
    with building.system_storage_errors(cache), building.build_lock(cache, report):
        if isinstance(base, Packages) and not base.fresh:
            built = _reusable(name)
            if built is not None and not built.source.startswith("tar:"):
                report(f"already built: {built.path}")
                return built
        building.build(declaration, text, tree=tree, cache=cache, base=base, report=report)
    system = find_system(called or name)
    report(f"built {system.name}: {system.path}")
    return system


def _check_name(called: str, *, other: bool) -> None:
    """Raise UsageError for an invalid name, and for any name unless `other` is true."""
    problems: list[str] = []
    checked(SystemName, called, "the name", problems)
    if problems:
        raise UsageError(problems[0], hint="such as my-debian")
    if not other:
        raise UsageError(
            "a name can be given only for a tarball, or with --unlocked",
            hint="add --rootfs-tar FILE or --unlocked, or set the name in the TOML file",
        )
    if called in declared_names():
        raise UsageError(f"{called} is the name of a shipped system", hint="choose another name")


def _reusable(asked: str) -> System | None:
    """Return the system of this name if it is built, current and undamaged, else None."""
    try:
        system = find_system(asked)
    except (SystemNotBuiltError, SystemCorruptError):
        return None
    return system if damage(system.path) is None else None


def list_systems() -> list[tuple[str, System | ShioenvError]]:
    """Return all declared and built systems, sorted by name, each with its system or its error.

    The error is SystemNotBuiltError, SystemCorruptError for a damaged system, or
    SystemStorageError for unreadable files. Raises SystemStorageError if the names cannot be read.
    """
    systems: list[tuple[str, System | ShioenvError]] = []
    cache = cache_directory()
    with building.system_storage_errors(cache):
        names = sorted(_known_names(cache))
    for name in names:
        try:
            systems.append((name, find_system(name)))
        except (SystemNotBuiltError, SystemCorruptError, SystemStorageError) as error:
            systems.append((name, error))
    return systems


@dataclass(frozen=True, slots=True)
class Pruned:
    """A directory or file removed from the cache."""

    path: Path
    bytes: int
    """Total size of its files in bytes, from `lstat`."""


def prune_systems(report: Progress = building.silent) -> tuple[Pruned, ...]:
    """Remove unused files from the cache and return the removed items.

    Removes systems without a name, bases that no system was built from, and temporary files of
    killed builds and imports. If the file of a system's name cannot be read, nothing is removed,
    because that system may be in use. Errors: SystemCorruptError for such a file,
    SystemStorageError.
    """
    cache = cache_directory()
    removed: list[Pruned] = []
    if not cache.exists():
        return ()
    with building.system_storage_errors(cache), building.build_lock(cache, report):
        needed: set[str] = set()
        bases: set[str] = set()
        for path in _name_files(cache):
            try:
                named = read_json(path)
                needed.add(str(named["digest"]))
                bases.add(str(named["source"]).partition(":")[2])
            except PermissionError:
                raise
            except (OSError, ValueError, KeyError) as error:
                raise _corrupt(path.stem, path, error) from error
        left = [*cache.glob(f"{building.IMPORTING}*"), *(cache / "bases").glob("*.part")]
        left += [path for path in (cache / "systems").glob("*") if path.name not in needed]
        left += [
            path for path in (cache / "bases").glob("*.tar")
            if path.stem.rpartition("-")[2] not in bases
        ]  # fmt: skip
        for path in sorted(left):
            size = _size(path)
            report(f"removing {path}")
            if path.is_dir() and not path.is_symlink():
                building.remove_tree(path)
            else:
                path.unlink()
            removed.append(Pruned(path, size))
    return tuple(removed)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files beneath a directory that `lstat` can access."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size  # noqa: PTH118
    return total


def remove_system(name: str) -> bool:
    """Remove the built system of this name; return False if it does not exist.

    Files are kept if another name refers to the same system. Errors: SystemStorageError.
    """
    cache = cache_directory()
    named = cache / "names" / f"{name}.json"
    with building.system_storage_errors(cache), building.build_lock(cache, building.silent):
        if not named.exists():
            return False
        digest = read_json(named).get("digest", "")
        named.unlink()
        others = [read_json(path) for path in (cache / "names").glob("[!.]*.json")]
        path = cache / "systems" / digest
        if digest and path.exists() and all(other.get("digest") != digest for other in others):
            building.remove_tree(path)
        return True
