"""Build root filesystems of systems into the content-addressed cache directory.

    systems/<digest>/   rootfs/  proc/<name>  processes/<process>/<name>  web/<path>
                        index.json.gz  system.json  contents.json.gz  declaration.toml
                        shell.json (a `ServingVerdict`)  microvm/ (see `microvm`)
    names/<name>.json   the digest of the system with this name, and the source of its base
    bases/<key>.tar     a base made by mmdebstrap, for later builds with the same packages

A system is built in a temporary directory beside its final path, which is renamed at the end. So a
build that fails or is interrupted leaves nothing behind. Only one build runs at a time.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import inspect
import json
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from subprocess import DEVNULL
from typing import IO

from shioenv import native
from shioenv.errors import BuildToolError, RootfsTarError, SystemBuildError, SystemStorageError
from shioenv.files.durable import atomic_write
from shioenv.system import (
    answers,
    elf,
    home,
    home_files,
    image,
    logs,
    proc,
    processes,
    processor,
    profile,
    templates,
)
from shioenv.system.bootstrap import LAYOUT_VERSION, Packages, Progress, bootstrap, os_release
from shioenv.system.contents import damage, read_json, resolve, tree_sum, write_contents
from shioenv.system.declare import SystemDeclaration, declared_names, systems_directory
from shioenv.system.idmap import find_idmap, run_mapped
from shioenv.system.oci import MOST_BYTES, name_components, plain_tar

PROGRAMS = {"ip": "iproute2", "nft": "nftables", "uname": "coreutils"}
"""Programs run inside a system to record an input's changes, each with its Debian package."""

IMPORTING = ".import-"
"""Prefix of the temporary directories that imports unpack into."""

DEFAULT_PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
"""The search path that Debian's bash uses if PATH is not set."""


@dataclass(frozen=True, slots=True)
class TarBase:
    """A tarball to build a system from."""

    path: Path
    needed: Mapping[str, str] = field(default_factory=lambda: PROGRAMS)
    """Programs that the system must contain, each with its Debian package."""


def silent(line: str) -> None:
    """Ignore a line of progress."""


def fingerprint(declaration: SystemDeclaration, text: str) -> str:
    """Return a hash of everything that can change the result of building from `text`.

    The hash covers the declaration, the files of the home tree, and the code written into the C
    library and the loader. It also covers the source of the modules that compose the image,
    including comments and docstrings.
    """
    digest = hashlib.sha256(f"{LAYOUT_VERSION}\n{text}".encode())

    def add(entry: Traversable) -> None:
        if entry.is_dir():
            for child in sorted(entry.iterdir(), key=lambda child: child.name):
                if child.name != "__pycache__":
                    add(child)
        else:
            digest.update(entry.name.encode() + b"\0" + entry.read_bytes())

    for source in (declaration.home.source, *declaration.home.added):
        for path, content in home.HomeTree(source).used():
            digest.update(path.encode() + b"\0" + content)
    add(systems_directory().joinpath("web"))
    add(templates.templates_directory())
    add(systems_directory().joinpath("host_keys"))
    made_by = answers, elf, home, home_files, image, logs, proc, processes, processor, profile
    for module in (*made_by, templates):
        digest.update(inspect.getsource(module).encode())
    digest.update(native.answers_code() + native.processor_code())
    return digest.hexdigest()


def load_trees(declaration: SystemDeclaration) -> tuple[home_files.HomeEntry, ...]:
    """Load the home tree with the trees added to it, sorted by path, the top directory first.

    Raises SystemDeclarationError, which lists the faults of a tree. An entry beneath another tree's
    file is a fault.
    """
    found: dict[str, home_files.HomeEntry] = {}
    for source in (declaration.home.source, *declaration.home.added):
        part = replace(declaration, home=replace(declaration.home, source=source))
        found |= {entry.path: entry for entry in home.load_home(part)}
    for path in found:
        above = found[posixpath.dirname(path) or "."]
        if above.kind != "directory":
            problem = f"$.entries: {path!r} is beneath {above.path!r}, which is no directory"
            raise home.HomeTree(declaration.home.added[-1]).error([problem])
    return tuple(found[path] for path in sorted(found, key=lambda path: (path != ".", path)))


@contextmanager
def system_storage_errors(cache: Path) -> Iterator[None]:
    """Convert an OSError to SystemStorageError if the disk is full or the path is in the cache."""
    try:
        yield
    except OSError as error:
        where = error.filename or cache
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SystemStorageError(
                f"the disk is full: {where}",
                hint=f"a system needs about 520 MB in {cache}; set SHIOENV_CACHE for another disk",
            ) from error
        if not cache.is_dir() and os.path.lexists(cache):
            raise SystemStorageError(
                f"the cache {cache} is not a directory",
                hint="set SHIOENV_CACHE to a directory",
            ) from error
        if isinstance(where, (str, Path)) and Path(where).is_relative_to(cache):
            raise SystemStorageError(
                f"{where} cannot be used: {error.strerror}",
                hint="choose another cache directory: SHIOENV_CACHE=DIR",
            ) from error
        raise


@contextmanager
def build_lock(cache: Path, report: Progress) -> Iterator[None]:
    """Hold the lock that allows one build at a time; it is released when the process ends."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another build to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(
    declaration: SystemDeclaration,
    text: str,
    *,
    tree: tuple[home_files.HomeEntry, ...],
    cache: Path,
    base: TarBase | Packages,
    report: Progress,
) -> str:
    """Build or reuse the system of a declaration read from `text`, and return its digest.

    The caller holds the build lock. `tree` is loaded by the caller, so that a faulty home tree is
    reported before packages are downloaded.
    """
    with _workplace(cache) as work:
        return _build(declaration, text, tree, cache, work, base, report)


@contextmanager
def _workplace(cache: Path) -> Iterator[Path]:
    """Make a temporary directory for a build in the cache, and remove it at the end."""
    for name in ("systems", "names", "bases"):
        (cache / name).mkdir(exist_ok=True)
    for name in ("systems", "bases"):  # no other user may run the setuid programs in these
        (cache / name).chmod(0o700)
    _sweep(cache)
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=cache / "systems"))
    try:
        yield work
    finally:
        remove_tree(work)


def _build(
    declaration: SystemDeclaration,
    text: str,
    tree: tuple[home_files.HomeEntry, ...],
    cache: Path,
    work: Path,
    origin: TarBase | Packages,
    report: Progress,
) -> str:
    tar = origin if isinstance(origin, TarBase) else None
    lock = origin.lock if isinstance(origin, Packages) else None
    if isinstance(origin, Packages):
        _keep_other(declaration.name, cache, "mmdebstrap:")
        base_path, source = bootstrap(declaration, origin, cache, report)
    else:
        report(f"reading {origin.path}")
        base_path, source = plain_tar(origin.path, work, MOST_BYTES)
        _keep_other(declaration.name, cache, source)
    report("adding the home tree and the machine profile")
    with base_path.open("rb") as base, (work / "rootfs.tar").open("wb") as out:
        base_entries = image.read_base(base_path, image.base_time(declaration))
        packages = image.package_versions(base_entries, base)
        if tar is not None and declaration.name in declared_names():
            _check_distribution(declaration, base_entries, base, packages)
        absent = sorted({*declaration.distribution.packages} - {*packages}) if packages else []
        if tar is not None and absent:
            report(f"the tarball lacks {len(absent)} declared packages: {_installing(absent)}")
        entries = image.compose(
            declaration,
            base_entries,
            base,
            tree,
            [*profile.root_files(declaration), *logs.log_files(declaration, packages)],
        )
        entries, told = answers.install(declaration, entries, base)
        entries, told = processor.install(declaration, entries, base, told)
        image.write_tar(entries, base, out)
    _check_programs(declaration, entries, source, tar.needed if tar else PROGRAMS)
    if told.clock != declaration.clock:
        report(f"programs of this system see the host's time and kernel: {told.why}")
    made = SystemFiles(
        proc=proc.proc_files(declaration, told),
        processes=processes.process_files(declaration),
        web=profile.web_files(declaration, tree),
        answers=told,
    )

    def check(digest: str) -> None:
        if lock and lock.digest not in (digest, ""):
            raise SystemBuildError(
                f"the locked packages give the digest {digest}, and the lock of "
                f"{declaration.name} names {lock.digest}",
                hint="after a meant change of the declaration or of ShIOEnv: shioenv system lock "
                f"{declaration.name} --same-packages; else this host builds it otherwise",
            )

    return _install(declaration, text, made, cache, work, source, check, report)


def build_from(
    declaration: SystemDeclaration,
    text: str,
    made: SystemFiles,
    rootfs: Path,
    source: str,
    cache: Path,
    check: Callable[[str], None],
    report: Progress,
) -> str:
    """Install a system from its canonical tar; return its digest, which `check` may refuse."""
    with _workplace(cache) as work:
        rootfs.rename(work / "rootfs.tar")
        return _install(declaration, text, made, cache, work, source, check, report)


@dataclass(frozen=True, slots=True)
class SystemFiles:
    """The parts of a system other than its root filesystem and its declaration."""

    proc: Mapping[str, bytes]
    processes: Mapping[str, bytes]
    web: Mapping[str, bytes]
    answers: answers.Answers


def _install(
    declaration: SystemDeclaration,
    text: str,
    made: SystemFiles,
    cache: Path,
    work: Path,
    source: str,
    check: Callable[[str], None],
    report: Progress,
) -> str:
    """Install a system whose canonical tar is `work`/rootfs.tar, and return its digest.

    `check` raises an error for a digest that is not expected, before anything is installed.
    """
    tar, final = work / "rootfs.tar", work / "system"
    final.mkdir()
    entries = list(read_canonical(tar))
    with tar.open("rb") as content:
        rootfs_digest = hashlib.file_digest(content, "sha256").hexdigest()
        accounts = image.read_accounts(entries, content)
        packages = image.package_versions({entry.path: entry for entry in entries}, content)
    digest = _digest(declaration, rootfs_digest, made)
    check(digest)
    where = cache / "systems" / digest
    if damage(where) is not None:
        report("unpacking")
        _unpack(tar, final)
        _set_access_times(entries, work, final, int(declaration.instant.timestamp()))
        _write_files(final / "proc", made.proc, declaration)
        _write_files(final / "processes", made.processes, declaration)
        _write_files(final / "web", made.web, declaration)
        # mtime=0: equal systems have equal files
        with (
            (final / "index.json.gz").open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, 0) as index,
        ):
            rows = list(image.index_rows(entries))
            index.write(json.dumps(rows, separators=(",", ":")).encode())
        write_contents(final, tar)
        (final / "declaration.toml").write_text(text, encoding="utf-8")
        facts = {
            "layout": LAYOUT_VERSION,
            "name": declaration.name,
            "digest": digest,
            "rootfs_sha256": rootfs_digest,
            "source": source,
            "bytes": sum(entry.size for entry in entries),
            "entries": len(entries),
            "users": {name: int(row[2]) for name, row in accounts.users.items()},
            "groups": {name: int(row[2]) for name, row in accounts.groups.items()},
            "login_users": accounts.login_users(),
            "session_groups": accounts.groups_of(declaration.session.user),
            "answers": asdict(made.answers),
            "packages": packages,
            "holes": [entry.path for entry in entries if entry.holes],
            "tree_sums": {
                "names": tree_sum(row for row in rows if row[0] != "/"),
                "part": tree_sum(
                    row for row in rows if row[0] != "/" and not f"{row[0]}/".startswith("/usr/")
                ),
            },
        }
        write_json(final / "system.json", facts)
        final.chmod(0o755)
        if where.exists():  # damaged
            remove_tree(where)
        final.rename(where)
    else:
        report("the same system is already built")
    named = {"digest": digest, "fingerprint": fingerprint(declaration, text), "source": source}
    write_json(cache / "names" / f"{declaration.name}.json", named)
    return digest


_LARGEST_SPARSE = 64 << 20


def read_canonical(path: Path) -> Iterator[image.ImageEntry]:
    """Yield the entries of a tar that `image.write_tar` wrote."""
    kinds = {tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}
    kinds |= {tarfile.FIFOTYPE: stat.S_IFIFO}
    with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as archive:
        for member in archive:
            data = None
            if member.issparse():
                if member.size > _LARGEST_SPARSE:
                    raise ValueError(f"{member.name!r} is a sparse file of {member.size:,} bytes")
                file = archive.extractfile(member)
                data = file.read() if file else b""
            yield image.ImageEntry(
                "/".join(name_components(member.name)),
                kinds.get(member.type, stat.S_IFREG),
                member.mode, member.uid, member.gid, int(member.mtime),
                target=member.linkname, size=member.size, data=data,
                offset=member.offset_data, holes=member.issparse(),
            )  # fmt: skip


_ANOTHER_NAME = "give the new one another name: --rootfs-tar FILE --name NAME"


def _keep_other(name: str, cache: Path, source: str) -> None:
    """Raise SystemBuildError if a system of this name exists that was built from another source."""
    try:
        named = read_json(cache / "names" / f"{name}.json")
        there, path = str(named["source"]), cache / "systems" / str(named["digest"])
    except (OSError, ValueError, KeyError):
        return
    if path.exists() and not there.startswith(source):
        raise SystemBuildError(
            f"a system {name} from another source ({there[:20]}) is already built",
            hint=f"{_ANOTHER_NAME}; or first: shioenv system remove {name}",
        )


def _check_distribution(
    declaration: SystemDeclaration,
    entries: Mapping[str, image.ImageEntry],
    base: IO[bytes],
    packages: Mapping[str, str],
) -> None:
    """Raise RootfsTarError if the tarball contains another distribution than the declared one.

    The os-release file is compared with that of its package, if dpkg lists that package.
    """
    paths = [path for path in ("usr/lib/os-release", "etc/os-release") if path in entries]
    text = image.content(entries[paths[0]], base) if paths else b""
    release = os_release(text.decode("utf-8", "replace"))
    distribution = declaration.distribution
    found = [release.get("ID", ""), release.get("VERSION_CODENAME", "")]
    expected = [distribution.family, distribution.suite]
    if version := packages.get("base-files"):
        sums = entries.get("var/lib/dpkg/info/base-files.md5sums")
        line = hashlib.md5(text, usedforsecurity=False).hexdigest() + "  usr/lib/os-release\n"
        listed = image.content(sums, base).decode("utf-8", "replace") if sums else line
        if line not in listed:
            raise RootfsTarError(
                f"the tarball's os-release is not the one of its package base-files {version}",
                hint=_ANOTHER_NAME,
            )
        family = "ubuntu" if "ubuntu" in version else "debian"
        found = found if family == distribution.family else [family, f"base-files {version}"]
    if any(found) and found != expected:
        raise RootfsTarError(
            f"the tarball contains {' '.join(filter(None, found))}, but {declaration.name} is "
            f"{' '.join(expected)}",
            hint=_ANOTHER_NAME,
        )


def _check_programs(
    declaration: SystemDeclaration,
    entries: list[image.ImageEntry],
    source: str,
    needed: Mapping[str, str],
) -> None:
    """Raise RootfsTarError or SystemBuildError if a needed program is not in the session's PATH."""
    at = {f"/{entry.path}": entry for entry in entries}
    path = declaration.session.environment.get("PATH", DEFAULT_PATH)

    def target(place: str) -> str | None:
        return at[place].target if place in at else None

    def runs(program: str) -> bool:
        ways = (resolve(f"{directory}/{program}", target) for directory in path.split(":"))
        found = [at[way] for way in ways if way in at]
        return any(entry.kind == stat.S_IFREG and entry.mode & 0o111 for entry in found)

    missing = {program: needed[program] for program in needed if not runs(program)}
    if not missing:
        return
    message = (
        f"the system has no {' and no '.join(missing)} in its session's PATH ({path}), "
        "required for recording the changes of inputs"
    )
    packages = list(dict.fromkeys(missing.values()))
    if source.startswith("tar:"):
        raise RootfsTarError(message, hint=f"in the system that you pack: {_installing(packages)}")
    hint = f"add to `packages` of its declaration: {', '.join(packages)}"
    raise SystemBuildError(message, hint=hint)


def _installing(packages: Sequence[str]) -> str:
    """Return the command that installs the packages on Debian or Ubuntu."""
    return f"apt-get install {' '.join(packages)}"


def _write_files(top: Path, files: Mapping[str, bytes], declaration: SystemDeclaration) -> None:
    """Write files beneath `top`, readable by all users and dated at the system's instant."""
    moment = declaration.instant.timestamp()
    for name, data in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
        os.utime(path, (moment, moment))
    for path in (top, *(path for path in top.rglob("*") if path.is_dir())):
        path.chmod(0o755)


def _digest(declaration: SystemDeclaration, rootfs: str, made: SystemFiles) -> str:
    """Return the SHA-256 (hex) of all that affects inputs: files, /proc, web, session, machine."""
    session = {
        "user": declaration.session.user,
        "umask": declaration.session.umask,
        "environment": dict(declaration.session.environment),
        "limits": {name: list(pair) for name, pair in declaration.session.limits.items()},
    }
    machine, told = declaration.machine, made.answers
    shown = {**made.proc, **{f"/{name}": data for name, data in made.processes.items()}}
    document = {
        "rootfs": rootfs,
        "proc": {name: hashlib.sha256(data).hexdigest() for name, data in shown.items()},
        "web": {path: hashlib.sha256(data).hexdigest() for path, data in made.web.items()},
        "session": session,
        "instant": declaration.instant.isoformat(),
        "hostname": machine.hostname,
        "domain": machine.domain,
        "disk": machine.disk,
        "uptime": machine.uptime,
        "answers": [told.clock, told.kernel],
        "kernel": [machine.kernel.release, machine.kernel.version],
        "interfaces": [asdict(interface) for interface in machine.interfaces],
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically."""
    atomic_write(path, f"{json.dumps(value, indent=1)}\n".encode())


def _sweep(cache: Path) -> None:
    """Remove temporary files left by killed builds."""
    for left in (cache / "systems").glob(".build-*"):
        remove_tree(left)
    for left in (cache / "bases").glob("*.part"):
        left.unlink()


def remove_tree(path: Path) -> None:
    """Remove the directory of a system or a build, including files owned by mapped ids."""
    if os.geteuid() != 0 and not path.name.startswith(".build-") and (path / "rootfs").is_dir():
        closed = Path(tempfile.mkdtemp(prefix=".build-", dir=path.parent))
        path.rename(closed / "system")
        path = closed
    inside = path / "system"
    if os.geteuid() != 0 and (inside / "rootfs").is_dir():
        inside.chmod(0o777)  # lets the system's root remove rootfs; the parent directory is private
        _mapped(["rm", "-rf", "--one-file-system", "rootfs"], inside)
    shutil.rmtree(path, ignore_errors=True)


def _mapped(command: list[str], cwd: Path, stdin: IO[bytes] | int = DEVNULL) -> tuple[int, str]:
    """Run a program as the system's root in `cwd`; return its exit status and standard error."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    ended = run_mapped(command, idmap=find_idmap(), cwd=cwd, stdin=stdin, env=environment)
    return ended.returncode, ended.stderr.decode("utf-8", "replace").strip()


def _unpack(tar: Path, directory: Path) -> None:
    """Unpack a tar into `directory`/rootfs, with files owned by the mapped ids."""
    program = shutil.which("tar")
    if program is None:
        raise BuildToolError("tar is not installed", hint="on Debian: apt-get install tar")
    directory.chmod(0o777)  # lets the system's root create rootfs; the parent directory is private
    script = f'umask 022; mkdir rootfs && exec {program} "$@"'
    arguments = "--extract --file=- --directory=rootfs --numeric-owner --same-owner"
    arguments += " --same-permissions --delay-directory-restore --warning=no-timestamp"
    with tar.open("rb") as stdin:
        status, errors = _mapped(
            ["/bin/sh", "-c", script, "sh", *arguments.split()], directory, stdin
        )
    if "No space left on device" in errors or "Disk quota exceeded" in errors:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))
    if status != 0:
        raise SystemBuildError(f"unpacking the root filesystem failed: {errors[-2000:]}")


def _set_access_times(
    entries: list[image.ImageEntry], work: Path, directory: Path, moment: int
) -> None:
    """Set every access time to `moment`, so that `stat` prints the same on every host."""
    names = work / "names"
    paths = (f"./{entry.path}\0".encode("utf-8", "surrogateescape") for entry in entries)
    names.write_bytes(b"".join(paths))
    with names.open("rb") as stdin:
        command = ["xargs", "-0", "touch", "--no-dereference", "-a", f"--date=@{moment}", "--"]
        status, errors = _mapped(command, directory / "rootfs", stdin)
    if status != 0:
        raise SystemBuildError(f"setting times of access failed: {errors[-2000:]}")
