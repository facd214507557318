"""Builds a system's root filesystem and puts it, content-addressed, into the cache directory.

    systems/<digest>/   rootfs/  proc/<name>  web/<path>  index.json.gz  system.json
                        contents.json.gz  declaration.toml  shell.json (how its bash is served)
    names/<name>.json   which digest a name stands for, and from what it was built
    bases/<key>.tar     what mmdebstrap made, so that a changed home tree does not need it again

Everything is made in a directory beside its place and renamed into it: a build that fails or is
interrupted leaves nothing behind. One build runs at a time.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import inspect
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from email import message_from_string
from importlib.resources.abc import Traversable
from pathlib import Path
from subprocess import DEVNULL
from typing import IO, Any

from shioenv import native
from shioenv.errors import (
    BuildToolError,
    HostError,
    RootfsTarError,
    SystemBuildError,
    SystemStorageError,
)
from shioenv.files.durable import atomic_write, sha256_of
from shioenv.files.regular import open_regular
from shioenv.system import answers, home, image, processes, profile, web
from shioenv.system.contents import tree_sum, write_contents
from shioenv.system.declare import (
    Distribution,
    SystemDeclaration,
    declared_names,
    systems_directory,
)
from shioenv.system.idmap import find_idmap, run_mapped
from shioenv.system.links import resolve

LAYOUT_VERSION = 3
"""Of the cache directory; another one makes every system be built again."""

_ONE_LOCALE_FILE = (
    'test ! -d "$1/usr/lib/locale/C.utf8" || '
    'chroot "$1" localedef --add-to-archive /usr/lib/locale/C.utf8'
)
"""Has the system's own tool put the files of its locale into one, as on a machine with locales:
24 of the 34 files that `ls` would open are those."""

_OF_THE_HOST = re.compile(
    r"PATH|HOME|TMPDIR|APT_CONFIG|SSL_CERT_(FILE|DIR)|(HTTPS?|FTP|ALL|NO)_PROXY", re.IGNORECASE
)
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
"""Of mmdebstrap, hence of what packages run when they are installed. Of the host's variables it has
those alone that a download may need: whether bytecode of an import is kept was up to one of them.
"""

PROGRAMS = {"ip": "iproute2", "nft": "nftables", "uname": "coreutils"}
"""What is run inside a system to record what an input changed: Debian's packages by program."""

_DEFAULT_PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
"""Where Debian's bash looks, told nothing."""

Progress = Callable[[str], None]
"""Is given one line at a time of what is being done."""


def silent(line: str) -> None:
    """Progress that nobody looks at."""


def cache_directory() -> Path:
    """`$SHIOENV_CACHE`, else `shioenv` in `$XDG_CACHE_HOME`, else in `~/.cache`. May not exist."""
    if chosen := os.environ.get("SHIOENV_CACHE"):
        return Path(chosen).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "shioenv"
    return Path.home() / ".cache" / "shioenv"


def fingerprint(declaration: SystemDeclaration, text: str) -> str:
    """Changes whenever building from the declaration's `text` could give another system.

    Covers the declaration, the home tree's files, the modules that turn them into an image and the
    code that is written into the C library.
    """
    digest = hashlib.sha256(f"{LAYOUT_VERSION}\n{text}".encode())

    def add(entry: Traversable) -> None:
        if entry.is_dir():
            for child in sorted(entry.iterdir(), key=lambda child: child.name):
                if child.name != "__pycache__":
                    add(child)
        else:
            digest.update(entry.name.encode() + b"\0" + entry.read_bytes())

    for path, content in home.HomeTree(declaration.home.source).used():
        digest.update(path.encode() + b"\0" + content)
    add(systems_directory().joinpath("web"))
    for module in (answers, home, image, processes, profile, web):
        digest.update(inspect.getsource(module).encode())
    digest.update(native.answers_code())
    return digest.hexdigest()


@contextmanager
def storage_errors(cache: Path) -> Iterator[None]:
    """Say what a full disk or missing permission means here."""
    try:
        yield
    except OSError as error:
        where = error.filename or cache
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SystemStorageError(
                f"the disk is full: {where}",
                hint=f"a system needs about 450 MB in {cache}; SHIOENV_CACHE=DIR puts it elsewhere",
            ) from error
        if isinstance(where, (str, Path)) and Path(where).is_relative_to(cache):
            raise SystemStorageError(
                f"{where} cannot be used: {error.strerror}",
                hint="SHIOENV_CACHE=DIR puts the cache of systems elsewhere",
            ) from error
        raise


@contextmanager
def build_lock(cache: Path, report: Progress) -> Iterator[None]:
    """Held by the one build that may run; the lock goes with its process."""
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
    tree: tuple[home.HomeEntry, ...],
    cache: Path,
    rootfs_tar: Path | None,
    fresh: bool,
    report: Progress,
) -> str:
    """Build (or reuse) the system of a declaration read from `text`; gives its digest.

    The caller has read the home tree, which takes no download, and holds the lock.
    """
    for name in ("systems", "names", "bases"):
        (cache / name).mkdir(exist_ok=True)
    for name in ("systems", "bases"):  # their setuid programs are no other user's to run
        (cache / name).chmod(0o700)
    _sweep(cache)
    work = Path(tempfile.mkdtemp(prefix=".build-", dir=cache / "systems"))
    try:
        return _build(declaration, text, tree, cache, work, rootfs_tar, fresh, report)
    finally:
        remove_tree(work)


def _build(
    declaration: SystemDeclaration,
    text: str,
    tree: tuple[home.HomeEntry, ...],
    cache: Path,
    work: Path,
    rootfs_tar: Path | None,
    fresh: bool,
    report: Progress,
) -> str:
    if rootfs_tar is None:
        _keep_other(declaration.name, cache, "mmdebstrap:")
        base_path, source = _bootstrap(declaration, cache, work, fresh, report)
    else:
        report(f"reading {rootfs_tar}")
        base_path, source = _plain_tar(rootfs_tar, work)
        _keep_other(declaration.name, cache, source)
    report("adding the home tree and the machine profile")
    final = work / "system"
    final.mkdir()
    with base_path.open("rb") as base, (work / "rootfs.tar").open("wb") as out:
        base_entries = image.read_base(base_path, image.base_time(declaration))
        if rootfs_tar is not None and declaration.name in declared_names():
            _check_distribution(declaration, base_entries, base)
        packages = image.package_versions(base_entries, base)
        entries = image.compose(
            declaration, base_entries, base, tree, profile.root_files(declaration)
        )
        entries, told = answers.install(declaration, entries, base)
        rootfs_digest = image.write_tar(entries, base, out)
        accounts = image.read_accounts(entries, base)
    _check_programs(declaration, entries, source)
    if told.clock != declaration.clock:
        report(f"programs of this system are told the host's time and kernel: {told.why}")
    proc = profile.proc_files(declaration, told)
    own = processes.process_files(declaration)
    site = web.web_files(declaration, tree)
    digest = _digest(
        declaration, rootfs_digest, proc | {f"/{name}": own[name] for name in own}, site, told
    )
    where = cache / "systems" / digest
    if damage(where) is not None:
        report("unpacking")
        _unpack(work / "rootfs.tar", final)
        _set_access_times(entries, work, final, int(declaration.instant.timestamp()))
        _write_files(final / "proc", proc, declaration)
        _write_files(final / "processes", own, declaration)
        _write_files(final / "web", site, declaration)
        # mtime=0: the file is the same for the same system
        with (
            (final / "index.json.gz").open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, 0) as index,
        ):
            rows = list(image.index_rows(entries))
            index.write(json.dumps(rows, separators=(",", ":")).encode())
        write_contents(final, work / "rootfs.tar")
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
            "answers": asdict(told),
            "packages": packages,
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
        report("the same system is already there")
    named = {"digest": digest, "fingerprint": fingerprint(declaration, text), "source": source}
    write_json(cache / "names" / f"{declaration.name}.json", named)
    return digest


_ANOTHER_NAME = "give the new one a name of its own: --rootfs-tar FILE --name NAME"


def _keep_other(name: str, cache: Path, source: str) -> None:
    """SystemBuildError where a system of this name is there that was made from something else."""
    try:
        named = read_json(cache / "names" / f"{name}.json")
        there, path = str(named["source"]), cache / "systems" / str(named["digest"])
    except (OSError, ValueError, KeyError):
        return
    if path.exists() and not there.startswith(source):
        raise SystemBuildError(
            f"a system {name} is built already, and from something else ({there[:20]})",
            hint=f"{_ANOTHER_NAME}; or first: shioenv system remove {name}",
        )


def _check_distribution(
    declaration: SystemDeclaration, entries: Mapping[str, image.ImageEntry], base: IO[bytes]
) -> None:
    """RootfsTarError where a tarball says that it is another distribution than is declared."""
    paths = [path for path in ("usr/lib/os-release", "etc/os-release") if path in entries]
    if not paths:
        return
    said = os_release(image.content(entries[paths[0]], base).decode("utf-8", "replace"))
    distribution = declaration.distribution
    is_it = [said.get("ID", ""), said.get("VERSION_CODENAME", "")]
    meant = [distribution.family, distribution.suite]
    if any(is_it) and is_it != meant:
        raise RootfsTarError(
            f"the tarball holds {' '.join(filter(None, is_it))}, and {declaration.name} is "
            f"{' '.join(meant)}",
            hint=_ANOTHER_NAME,
        )


def _check_programs(
    declaration: SystemDeclaration, entries: list[image.ImageEntry], source: str
) -> None:
    """RootfsTarError or SystemBuildError where the session would not find one of `PROGRAMS`."""
    at = {f"/{entry.path}": entry for entry in entries}
    path = declaration.session.environment.get("PATH", _DEFAULT_PATH)

    def target(place: str) -> str | None:
        return at[place].target if place in at else None

    def runs(program: str) -> bool:
        ways = (resolve(f"{directory}/{program}", target) for directory in path.split(":"))
        found = [at[way] for way in ways if way in at]
        return any(entry.kind == stat.S_IFREG and entry.mode & 0o111 for entry in found)

    missing = {program: PROGRAMS[program] for program in PROGRAMS if not runs(program)}
    if not missing:
        return
    said = (
        f"the system has no {' and no '.join(missing)} in its session's PATH ({path}): "
        "without, nobody could tell what inputs change"
    )
    packages = ", ".join(dict.fromkeys(missing.values()))
    if source.startswith("tar:"):
        hint = f"give a tarball of a system with these packages installed: {packages}"
        raise RootfsTarError(said, hint=hint)
    raise SystemBuildError(said, hint=f"add to `packages` of its declaration: {packages}")


def _write_files(top: Path, files: dict[str, bytes], declaration: SystemDeclaration) -> None:
    """The files beneath `top`, readable by everybody and as old as the system's instant."""
    moment = declaration.instant.timestamp()
    for name, data in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
        os.utime(path, (moment, moment))
    for path in (top, *(path for path in top.rglob("*") if path.is_dir())):
        path.chmod(0o755)


def _digest(
    declaration: SystemDeclaration,
    rootfs: str,
    proc: dict[str, bytes],
    site: dict[str, bytes],
    told: answers.Answers,
) -> str:
    """sha256 over everything that decides what an input does: files, /proc, session, machine."""
    session = {
        "user": declaration.session.user,
        "umask": declaration.session.umask,
        "environment": dict(declaration.session.environment),
        "limits": {name: list(pair) for name, pair in declaration.session.limits.items()},
    }
    machine = declaration.machine
    document = {
        "rootfs": rootfs,
        "proc": {name: hashlib.sha256(data).hexdigest() for name, data in proc.items()},
        "web": {path: hashlib.sha256(data).hexdigest() for path, data in site.items()},
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


def damage(path: Path) -> str | None:
    """What is wrong with a built system in a directory of the cache; None where nothing is.

    Each file of the root filesystem is looked at, not read: whether it is there, its kind, mode,
    size and time. What this user may not look at counts as sound.
    """
    try:
        read_json(path / "system.json")
        with gzip.open(path / "index.json.gz") as index:
            rows = json.loads(index.read())
    except (OSError, ValueError, EOFError) as error:
        return str(error)
    for name in ("rootfs", "proc", "processes", "contents.json.gz"):
        if not (path / name).exists():
            return f"{name} is gone"
    rootfs = os.fsencode(path / "rootfs")
    files_first = sorted(rows, key=lambda row: stat.S_ISDIR(row[1]))
    for name, mode, _, _, size, _, mtime, _ in files_first:
        try:
            status = os.lstat(rootfs + os.fsencode(name))
        except PermissionError:
            continue
        except OSError:
            return f"{name} is gone"
        regular = stat.S_ISREG(mode)
        other_size = regular and status.st_size != size
        if status.st_mode != mode or other_size or status.st_mtime_ns != mtime * 10**9:
            return f"{name} was changed"
    return None


def write_json(path: Path, value: object) -> None:
    """Write a JSON file that is either wholly there or not at all."""
    atomic_write(path, f"{json.dumps(value, indent=1)}\n".encode())


def read_json(path: Path) -> dict[str, Any]:
    """What `write_json` wrote. Raises OSError or ValueError."""
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no object")
    return value


def _sweep(cache: Path) -> None:
    """Remove what builds that were killed left behind."""
    for left in (cache / "systems").glob(".build-*"):
        remove_tree(left)
    for left in (cache / "bases").glob("*.part"):
        left.unlink()


def remove_tree(path: Path) -> None:
    """Remove a directory of ours, the files of mapped ids in it included."""
    if os.geteuid() != 0 and not path.name.startswith(".build-") and (path / "rootfs").is_dir():
        closed = Path(tempfile.mkdtemp(prefix=".build-", dir=path.parent))
        path.rename(closed / "system")
        path = closed
    inside = path / "system"
    if os.geteuid() != 0 and (inside / "rootfs").is_dir():
        inside.chmod(0o777)  # the system's root removes rootfs from it; what lies above is closed
        _mapped(["rm", "-rf", "--one-file-system", "rootfs"], inside)
    shutil.rmtree(path, ignore_errors=True)


def _mapped(command: list[str], cwd: Path, stdin: IO[bytes] | int = DEVNULL) -> tuple[int, str]:
    """Run a program as the system's root in `cwd`; gives its status and what it complained of."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    ended = run_mapped(command, idmap=find_idmap(), cwd=cwd, stdin=stdin, env=environment)
    return ended.returncode, ended.stderr.decode("utf-8", "replace").strip()


def _unpack(tar: Path, directory: Path) -> None:
    """Unpack into `directory`/rootfs, owned by the mapped ids."""
    program = shutil.which("tar")
    if program is None:
        raise BuildToolError("tar is not installed", hint="apt-get install tar")
    directory.chmod(0o777)  # the system's root makes rootfs in it; what lies above is closed
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
    """Every file was last read at the system's instant: `stat` shows the same everywhere."""
    names = work / "names"
    paths = (f"./{entry.path}\0".encode("utf-8", "surrogateescape") for entry in entries)
    names.write_bytes(b"".join(paths))
    with names.open("rb") as stdin:
        command = ["xargs", "-0", "touch", "--no-dereference", "-a", f"--date=@{moment}", "--"]
        status, errors = _mapped(command, directory / "rootfs", stdin)
    if status != 0:
        raise SystemBuildError(f"setting times of access failed: {errors[-2000:]}")


# ---------------------------------------------------------------------------------------------
# Where the base comes from


def _plain_tar(path: Path, work: Path) -> tuple[Path, str]:
    """The tarball uncompressed, and what to call it: `tar:` and its sha256."""
    import bz2
    import lzma
    import zlib

    try:
        with open_regular(path) as raw:
            magic = raw.read(6)
        source = f"tar:{sha256_of(path)}"
    except OSError as error:
        raise RootfsTarError(f"{path} cannot be read: {error.strerror}") from error
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return _unzstd(path, work), source
    openers: dict[bytes, Callable[[Path], Any]] = {
        b"\x1f\x8b": gzip.open,
        b"BZh": bz2.open,
        b"\xfd7zXZ\x00": lzma.open,
    }
    opener = next((open_ for start, open_ in openers.items() if magic.startswith(start)), None)
    if opener is None:
        return path, source
    plain = work / "base.tar"
    try:
        with opener(path) as compressed, plain.open("wb") as out:
            shutil.copyfileobj(compressed, out, 1 << 20)
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the disk, not of what is compressed
        raise RootfsTarError(f"{path} cannot be decompressed: {error}") from error
    return plain, source


def _unzstd(path: Path, work: Path) -> Path:
    plain = work / "base.tar"
    try:
        subprocess.run(
            ["zstd", "-q", "-d", str(path), "-o", str(plain)],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise BuildToolError(
            "zstd is not installed, and the tarball is compressed with it",
            hint="apt-get install zstd",
        ) from error
    except subprocess.CalledProcessError as error:
        raise RootfsTarError(f"{path} cannot be decompressed: {error.stderr.strip()}") from error
    return plain


def _bootstrap(
    declaration: SystemDeclaration, cache: Path, work: Path, fresh: bool, report: Progress
) -> tuple[Path, str]:
    """The base made by mmdebstrap, or the one of an earlier build with the same packages."""
    distribution = declaration.distribution
    time = image.base_time(declaration)
    key = hashlib.sha256(
        repr((LAYOUT_VERSION, distribution, time, _ENVIRONMENT)).encode()
    ).hexdigest()[:16]
    base = cache / "bases" / f"{distribution.suite}-{key}.tar"
    source = f"mmdebstrap:{key}"
    if base.exists() and not fresh:
        report(f"reusing the packages of {distribution.suite} from {base}")
        return base, source
    if shutil.which("mmdebstrap") is None:
        raise BuildToolError(
            "mmdebstrap is not installed; it builds root filesystems",
            hint="apt-get install mmdebstrap (Debian, Ubuntu); elsewhere give a ready root "
            "filesystem with --rootfs-tar FILE",
        )
    part = base.with_suffix(".part")
    sources = apt_sources(distribution)
    report(f"downloading and installing {distribution.suite} with mmdebstrap")
    for line in sources:
        report(f"  {line}")
    command = mmdebstrap_command(distribution, part, sources)
    environment = {name: os.environ[name] for name in os.environ if _OF_THE_HOST.fullmatch(name)}
    environment |= {"SOURCE_DATE_EPOCH": str(time), **_ENVIRONMENT}
    log: list[str] = []
    try:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", process_group=0,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    log.append(line.rstrip())
                    if line.startswith("I: ") and "tempdir" not in line:
                        report(f"  {line[3:].rstrip()}")
                status = process.wait()
            except BaseException:  # mmdebstrap unmounts and removes what it made when asked to end
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
                raise
        if status != 0:
            _bootstrap_failed(status, log, sources, cache)
        part.rename(base)
    finally:
        part.unlink(missing_ok=True)
    return base, source


_BASE_BYTES = 300 << 20
"""Of a base's tar, at most; the default system's has 240 MB."""


def _full_disk(cache: Path) -> SystemStorageError:
    """Which disk mmdebstrap has filled: that of the cache, which holds the tar that it makes, or
    that of temporary files, where it unpacks the packages and from which it removes them again.
    """
    temporary = Path(tempfile.gettempdir())
    of_cache = shutil.disk_usage(cache).free < _BASE_BYTES
    if of_cache or temporary.stat().st_dev == cache.stat().st_dev:
        return SystemStorageError(
            f"the disk is full: {cache}",
            hint=f"free 1.5 GB there; SHIOENV_CACHE=DIR puts {cache} elsewhere",
        )
    return SystemStorageError(
        f"the disk is full: {temporary}, where mmdebstrap unpacks packages",
        hint="it takes some 700 MB for a moment; TMPDIR=DIR puts it elsewhere",
    )


def _bootstrap_failed(status: int, log: list[str], sources: list[str], cache: Path) -> None:
    text = "\n".join(log[-25:])
    if re.search(r"No space left on device|Disk quota exceeded|enough free space", text):
        raise _full_disk(cache)
    if re.search(r"uid_map|newuidmap|subuid|unshare.*(denied|not permitted)", text):
        raise HostError(
            f"mmdebstrap cannot make a user namespace:\n{text}",
            hint="run `shioenv doctor`; or build as root; or give --rootfs-tar FILE",
        )
    hint = "see the lines above"
    if re.search(r"NO_PUBKEY|not signed|isn't signed", text):
        hint = "the archive's keys are missing: apt-get install debian-archive-keyring " \
               "(ubuntu-keyring for an Ubuntu system)"  # fmt: skip
    elif re.search(
        r"Could not (resolve|connect)|Temporary failure|Failed to fetch|timed out", text
    ):
        hint = f"no mirror answered; tried {sources[0]!r}; --rootfs-tar FILE needs none"
    raise SystemBuildError(f"mmdebstrap failed with status {status}:\n{text}", hint=hint)


def mmdebstrap_command(distribution: Distribution, target: Path, sources: list[str]) -> list[str]:
    """The command that makes the base, as root or as an ordinary user.

    Texts of the declaration stand behind `--`, or behind the name of one option each: none of them
    can be an option, and the patterns of `declare` leave no room for a second line or a file's
    name.
    """
    mode = "root" if os.geteuid() == 0 else "unshare"
    command = [
        "mmdebstrap", "--variant=essential", f"--mode={mode}", "--format=tar",
        f"--architectures={distribution.architecture}",
        f"--include={','.join(distribution.packages)}",
    ]  # fmt: skip
    command += [f"--aptopt={option}" for option in _apt_options()]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in distribution.leave_out]
    command += [f"--dpkgopt=path-include={pattern}" for pattern in distribution.keep]
    if distribution.keyring and Path(distribution.keyring).exists():
        command.append(f"--keyring={distribution.keyring}")
    command.append(f"--customize-hook={_ONE_LOCALE_FILE}")
    return [*command, "--", distribution.suite, str(target), *sources]


def _apt_options() -> list[str]:
    """Settings of the host's apt that decide whether a download works here."""
    try:
        dump = subprocess.run(
            ["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n', "Acquire"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return []
    wanted = re.compile(
        r"Acquire::(https?::(.*::)?Proxy|Check-Valid-Until|Check-Date|ForceIPv[46]|Retries"
        r"|https?::Timeout|https::(CaInfo|Verify-Peer))\b",
        re.IGNORECASE,
    )
    return [line.rstrip(";") for line in dump.splitlines() if wanted.match(line)]


def apt_sources(distribution: Distribution, etc: Path = Path("/etc")) -> list[str]:
    """One-line apt sources for the distribution: from the host's own, else the declared mirrors.

    A host that runs another release of the same family lends its mirrors; their suites are
    replaced by ours. Packages in a directory of the host are copied, for the root that they are
    installed in has no such directory. `etc` is where the host's configuration lies.
    """
    host = _os_release(etc)
    codename = host.get("VERSION_CODENAME", "")
    ours = {distribution.suite: distribution.suite}
    ours |= {pocket: pocket for pocket in distribution.pockets}
    if host.get("ID") == distribution.family and codename:
        for pocket in (distribution.suite, *distribution.pockets):
            ours.setdefault(pocket.replace(distribution.suite, codename, 1), pocket)
    lines: dict[str, None] = {}
    for options, uri, suite, components in _host_sources(etc):
        kept = [name for name in distribution.components if name in components]
        uri = uri.replace("file:", "copy:", 1) if uri.startswith("file:") else uri
        if suite in ours and kept and uri.startswith(("http://", "https://", "copy:")):
            prefix = f"deb [{options}]" if options else "deb"
            lines[f"{prefix} {uri} {ours[suite]} {' '.join(kept)}"] = None
    main = [line for line in lines if f" {distribution.suite} " in line]
    return list(lines) if main else list(distribution.mirrors)


def _os_release(etc: Path) -> dict[str, str]:
    try:
        return os_release((etc / "os-release").read_text(encoding="utf-8"))
    except OSError:
        return {}


def os_release(text: str) -> dict[str, str]:
    """Values by name in the text of an os-release file."""
    pairs = re.findall(r"^([A-Z_]+)=\"?([^\"\n]*)\"?$", text, re.MULTILINE)
    return dict(pairs)


def _host_sources(etc: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """Options, address, suite and components of each binary source the host's apt uses."""
    parts = etc / "apt" / "sources.list.d"
    files = [etc / "apt" / "sources.list", *sorted(parts.glob("*.list"))]
    for path in files:
        for line in _lines(path):
            match = re.match(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)", line)
            if match:
                options = [
                    option
                    for option in (match[1] or "").split()
                    if option.startswith(("signed-by=/", "trusted="))
                ]
                yield " ".join(options), match[2], match[3], match[4].split("#")[0].split()
    for path in sorted(parts.glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", "\n".join(_lines(path))):
            fields = message_from_string(stanza.strip())  # the same syntax as mail headers
            if fields.get("Enabled", "yes").strip().lower() == "no" or "deb" not in fields.get(
                "Types", ""
            ):
                continue
            key = fields.get("Signed-By", "").strip()
            options_text = f"signed-by={key}" if re.fullmatch(r"/\S+", key) else ""
            for uri in fields.get("URIs", "").split():
                for suite in fields.get("Suites", "").split():
                    yield options_text, uri, suite, fields.get("Components", "").split()


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if not line.startswith("#")]
