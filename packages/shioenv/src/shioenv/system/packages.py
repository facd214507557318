"""Locked packages: read a system's lock, and obtain exactly its packages.

`NAME.lock` lies beside `NAME.toml`. It is TOML, with one line for each package: name, version,
architecture, size in bytes, SHA-256, and path in the archive. Mirrors are untrusted: a file is used
only if its size and SHA-256 are those of the lock.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import IO, Annotated
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener, getproxies

from msgspec import Meta

from shioenv.errors import RootfsTarError, SystemBuildError, SystemDeclarationError
from shioenv.files.regular import open_regular, read_regular
from shioenv.system.declare import DEFAULT_SYSTEM, parse_toml, reason, systems_directory
from shioenv.system.values import checked, like

_LARGEST_LOCK = 8 << 20
_AT_ONCE = 6
_TRIES, _PATIENCE, _SLOWEST = 3, 20, 20_000
"""Attempts per address; seconds without a byte before an attempt fails; slowest rate in bytes/s."""

_LINE = (
    r"[a-z0-9][a-z0-9+.-]{0,99} [A-Za-z0-9.+:~-]{1,99} [a-z0-9]{2,16} [1-9][0-9]{0,9} "
    r"[0-9a-f]{64} (?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._+~%/-]{1,300}"
)


@dataclass(frozen=True, slots=True)
class Package:
    """One package of a lock."""

    name: str
    version: str
    architecture: str
    size: int
    """Bytes of the `.deb` file."""
    sha256: str
    path: str
    """Path in the archive, such as `pool/main/b/bash/bash_5.2.15-2+b8_amd64.deb`."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The packages of one system, with the digest of the system built from them."""

    schema: Annotated[int, Meta(ge=1, le=1)]
    """Version of the file's layout."""
    digest: Annotated[str, like("[0-9a-f]{64}", "64 hex digits")]
    """Digest of the system built from these packages."""
    snapshots: tuple[Annotated[str, like(r"https?://[!-~]{1,300}", "an http address")], ...] = ()
    """Archives with the state of the lock's date, for packages that mirrors no longer serve."""
    packages: tuple[
        Annotated[str, like(_LINE, "name, version, architecture, size, SHA-256 and path")], ...
    ]

    @property
    def files(self) -> tuple[Package, ...]:
        """The packages, in the order of the file."""
        rows = (line.split(" ") for line in self.packages)
        return tuple(
            Package(name, version, architecture, int(size), sha256, path)
            for name, version, architecture, size, sha256, path in rows
        )


def lock_text(name: str | None = None) -> str | None:
    """Return the text of the lock of a shipped system or of a TOML file; None if it has none.

    Errors: SystemDeclarationError if the file cannot be read.
    """
    name = name or DEFAULT_SYSTEM
    try:
        if name.endswith(".toml"):
            path = Path(name).with_suffix(".lock")
            return read_regular(path, _LARGEST_LOCK).decode() if os.path.lexists(path) else None
        file = systems_directory().joinpath(f"{name}.lock")
        return file.read_text(encoding="utf-8") if file.is_file() else None
    except (OSError, ValueError) as error:
        problem = f"its lock cannot be read: {reason(error)}"
        raise SystemDeclarationError(name, [problem]) from error


@lru_cache(maxsize=4)  # a host opens many sandboxes of few systems
def parse_lock(text: str, source: str) -> Lock:
    """Parse a lock. Errors: SystemDeclarationError, which lists every fault."""
    problems: list[str] = []
    lock: Lock = checked(Lock, parse_toml(text, source), "$", problems)
    if problems:
        raise SystemDeclarationError(source, problems)
    return lock


def format_lock(name: str, lock: Lock) -> str:
    """Return the text of a lock."""

    def listed(values: Iterable[str]) -> str:
        return "".join(f'  "{value}",\n' for value in values)

    return (
        f"# Packages of {name}, written by `shioenv system lock`: name, version, architecture, "
        f"size, SHA-256, path.\nschema = {lock.schema}\n"
        f'digest = "{lock.digest}"\nsnapshots = [\n{listed(lock.snapshots)}]\n'
        f"packages = [\n{listed(lock.packages)}]\n"
    )


def obtain(
    lock: Lock,
    addresses: Sequence[str],
    store: Path,
    directory: Path | None,
    proxies: Mapping[str, str],
    report: Callable[[str], None],
) -> dict[Package, Path]:
    """Return the verified file of each locked package, kept in `store` for later builds.

    Missing files are copied from `directory`, else downloaded. The addresses are tried in order,
    then the lock's snapshots. An address is that of an archive, or the absolute path of a directory
    of this host. `proxies` are addresses by scheme; those of the environment override them. Errors:
    SystemBuildError, which lists the packages that could
    not be obtained, and why.
    """
    store.mkdir(mode=0o700, exist_ok=True)
    for part in store.glob("*.part"):
        part.unlink()
    files = {package: store / f"{package.sha256}.deb" for package in lock.files}
    wanted = [package for package, file in files.items() if not _is(package, file)]
    if directory is not None:
        _copy_from(directory, wanted, files)
        refused = {one: "not there" for one in wanted if not files[one].exists()}
    else:
        total = sum(package.size for package in wanted)
        if wanted:
            report(f"downloading {len(wanted)} locked packages, {total / 1e6:,.1f} MB")
        opener = build_opener(ProxyHandler({**proxies, **getproxies()}))
        sources = [address.rstrip("/") for address in (*addresses, *lock.snapshots)]
        refused = dict(_download(wanted, files, sources, opener, report))
    if refused:
        shown = "".join(f"\n  {package}: {why}" for package, why in refused.items())
        where = f"in {directory}" if directory else "by the mirrors"
        raise SystemBuildError(
            f"{len(refused)} of {len(files)} locked packages are not served {where}:{shown}",
            hint="give their files: --packages DIR; or build what is current under another name: "
            "--unlocked",
        )
    return files


def _is(package: Package, file: Path) -> bool:
    """Whether a file has the size and SHA-256 of a package; any other file is removed."""
    try:
        with file.open("rb") as content:
            same = os.fstat(content.fileno()).st_size == package.size
            if same and hashlib.file_digest(content, "sha256").hexdigest() == package.sha256:
                return True
    except FileNotFoundError:
        return False
    file.unlink()
    return False


def _copy_from(directory: Path, wanted: list[Package], files: dict[Package, Path]) -> None:
    """Copy the wanted packages from a directory, whatever their files are called."""
    by_size = {package.size for package in wanted}
    found: dict[str, Path] = {}
    for path in sorted(directory.iterdir()):
        with suppress(OSError), open_regular(path) as content:
            if os.fstat(content.fileno()).st_size in by_size:
                found[hashlib.file_digest(content, "sha256").hexdigest()] = path
    for package in wanted:
        if package.sha256 in found:
            part = files[package].with_suffix(".part")
            shutil.copyfile(found[package.sha256], part)
            if _is(package, part):  # the file may have changed meanwhile
                part.rename(files[package])


def _download(
    wanted: list[Package],
    files: dict[Package, Path],
    sources: Sequence[str],
    opener: OpenerDirector,
    report: Callable[[str], None],
) -> Iterator[tuple[Package, str]]:
    """Download packages, several at once, and yield those that no source serves, with reasons."""
    done = 0

    def one(package: Package) -> str | None:
        reasons: dict[str, None] = {}
        for source in sources:
            part = files[package].with_suffix(".part")
            try:
                _take(opener, source, package, part)
                part.rename(files[package])
                return None
            except (OSError, HTTPException, ValueError) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                reasons[f"{source.split('://')[-1].split('/')[0]}: {_why(error)}"] = None
                part.unlink(missing_ok=True)
        return "; ".join(reasons) or "no mirror is declared"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for package, why in zip(wanted, pool.map(one, wanted), strict=True):
            done += 1
            if why is not None:
                yield package, why
            if done % 50 == 0:
                report(f"  {done} of {len(wanted)}")


def _why(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"{error.code} {error.reason}"
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


def _take(opener: OpenerDirector, source: str, package: Package, part: Path) -> None:
    """Write one package from one source to `part`.

    Errors: OSError or HTTPException if the source fails; ValueError for wrong content.
    """
    if source.startswith("/"):
        with open_regular(f"{source}/{package.path}") as content, part.open("wb") as out:
            _read(content, out, package.size, time.monotonic())
    else:
        address = f"{source}/{quote(package.path, safe='/%+~')}"
        _fetch(opener, address, part, package.size)
    if not _is(package, part):
        raise ValueError("another size or SHA-256 than in the lock")


def download(address: str, file: Path, most: int) -> None:
    """Download at most `most` bytes to a file. Errors: RootfsTarError."""
    try:
        _fetch(build_opener(), address, file, most)
    except (OSError, HTTPException, ValueError) as error:
        raise RootfsTarError(f"{address} cannot be downloaded: {_why(error)}") from error


def _fetch(opener: OpenerDirector, address: str, part: Path, most: int) -> None:
    """Write the response of an http address to `part`, and resume after failures.

    Errors: OSError or HTTPException if the server fails; ValueError if it sends too much, or too
    slowly.
    """
    begun = time.monotonic()
    for attempt in range(_TRIES):
        have = part.stat().st_size if part.exists() else 0
        request = Request(address, headers={"Range": f"bytes={have}-"} if have else {})
        try:
            with opener.open(request, timeout=_PATIENCE) as answer:
                resumed = have and answer.status == 206
                with part.open("ab" if resumed else "wb") as out:
                    _read(answer, out, most, begun)
                    announced = answer.headers.get("Content-Length", "")
                    whole = out.tell() - (have if resumed else 0)
                if announced.isdigit() and whole < int(announced):
                    raise OSError(f"{whole:,} of {announced} bytes")
            return
        except HTTPError as error:
            if error.code < 500 or attempt == _TRIES - 1:
                raise
        except (OSError, HTTPException):
            if attempt == _TRIES - 1:
                raise


def _read(content: IO[bytes], out: IO[bytes], most: int, begun: float) -> None:
    """Append content to `out`; raise ValueError for more than `most` bytes or a slow source."""
    have = out.tell()
    while piece := content.read(1 << 16):
        have += len(piece)
        if have > most:
            raise ValueError(f"more than {most:,} bytes")
        out.write(piece)
        if time.monotonic() - begun > 3 * _PATIENCE + have / _SLOWEST:
            raise ValueError("too slow")


def write_repository(files: Mapping[Package, Path], directory: Path, suite: str) -> str:
    """Make a repository of exactly these packages in an empty directory; return its apt source.

    Every user may read the repository, because apt runs as another user than the caller.
    """
    directory.chmod(0o755)

    def stanza(item: tuple[Package, Path]) -> str:
        package, file = item
        name = f"{package.sha256}.deb"
        shutil.copyfile(file, directory / name)
        control = subprocess.run(
            ["dpkg-deb", "--info", str(file), "control"], check=True, capture_output=True, text=True
        ).stdout.rstrip()
        return f"{control}\nFilename: ./{name}\nSize: {package.size}\nSHA256: {package.sha256}\n"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        stanzas = list(pool.map(stanza, files.items()))
    index = "\n".join(stanzas).encode()
    (directory / "Packages").write_bytes(index)
    digest = hashlib.sha256(index).hexdigest()
    (directory / "Release").write_text(  # mmdebstrap finds essential packages by their suite
        f"Suite: {suite}\nCodename: {suite}\nSHA256:\n {digest} {len(index)} Packages\n"
    )
    for made in directory.iterdir():
        made.chmod(0o644)
    return f"deb [trusted=yes] copy://{quote(str(directory))} ./"
