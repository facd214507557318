"""Install a distribution's packages into a root filesystem tarball with mmdebstrap."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

from shioenv.errors import (
    BuildToolError,
    HostError,
    SystemBuildError,
    SystemStorageError,
)
from shioenv.system import image
from shioenv.system.declare import Distribution, SystemDeclaration
from shioenv.system.packages import Lock, obtain, write_repository

LAYOUT_VERSION = 3
"""Version of the cache directory's layout. Changing it causes every system to be rebuilt."""

Progress = Callable[[str], None]
"""A callback that receives progress messages, one line at a time."""


_ONE_LOCALE_FILE = (
    'test ! -d "$1/usr/lib/locale/C.utf8" || '
    'chroot "$1" localedef --add-to-archive /usr/lib/locale/C.utf8'
)
"""Command that packs the files of the C.UTF-8 locale into a locale archive, as on ordinary
machines. Without the archive, `ls` would open 34 files, 24 of them for the locale."""

_OF_THE_HOST = re.compile(
    r"PATH|HOME|TMPDIR|APT_CONFIG|SSL_CERT_(FILE|DIR)|(HTTPS?|FTP|ALL|NO)_PROXY", re.IGNORECASE
)

_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
"""Environment variables of mmdebstrap, inherited by the packages' installation scripts.

Of the host's variables, mmdebstrap inherits only those that downloads may need (`_OF_THE_HOST`).
Other variables could change the result: one once decided whether Python's bytecode was kept.
"""


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages to install."""

    lock: Lock | None
    """The lock to install exactly, or None for whatever the mirrors serve."""
    directory: Path | None = None
    """Where the locked packages are, or None to download them."""
    fresh: bool = False
    """Whether to install the packages again if a base of the same packages is in the cache."""


def bootstrap(
    declaration: SystemDeclaration, packages: Packages, cache: Path, report: Progress
) -> tuple[Path, str]:
    """Make the base with mmdebstrap, and return its path and source (`mmdebstrap:KEY`).

    The base (root filesystem tarball) of an earlier build with the same packages is reused unless
    `fresh` is set. Errors: BuildToolError, HostError, SystemBuildError, SystemStorageError.
    """
    distribution, lock = declaration.distribution, packages.lock
    time = image.base_time(declaration)
    facts: list[object] = [LAYOUT_VERSION, distribution, time, _ENVIRONMENT]
    if lock:
        facts.append(lock.packages)
        _check_lock(distribution, lock)
    key = hashlib.sha256(repr(tuple(facts)).encode()).hexdigest()[:16]
    base = cache / "bases" / f"{distribution.suite}-{key}.tar"
    source = f"mmdebstrap:{key}"
    if base.exists() and not packages.fresh:
        report(f"reusing the packages of {distribution.suite} from {base}")
        return base, source
    if shutil.which("mmdebstrap") is None:
        raise BuildToolError(
            "mmdebstrap is not installed; it builds root filesystems",
            hint="apt-get install mmdebstrap (Debian, Ubuntu); elsewhere give a root filesystem "
            "with --rootfs-tar FILE",
        )
    _refuse_full_disk(cache)
    sources = apt_sources(distribution)
    part = base.with_suffix(".part")
    with ExitStack() as stack:
        if lock:
            addresses, store = archives(sources), cache / "packages"
            files = obtain(lock, addresses, store, packages.directory, _proxies(), report)
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="shioenv-packages-"))
            sources = [write_repository(files, Path(made), distribution.suite)]
            report(f"installing the {len(files)} locked packages with mmdebstrap")
        else:
            report(f"downloading and installing {distribution.suite} with mmdebstrap")
            for line in sources:
                report(f"  {line}")
        try:
            run_mmdebstrap(mmdebstrap_command(distribution, part, sources), time, cache, report)
            if lock:
                _check_installed(part, lock, time)
            part.rename(base)
        finally:
            part.unlink(missing_ok=True)
    return base, source


def _check_lock(distribution: Distribution, lock: Lock) -> None:
    """Raise SystemBuildError if declared packages are not in the lock."""
    missing = sorted({*distribution.packages} - {package.name for package in lock.files})
    if missing:
        raise SystemBuildError(
            f"the lock was made for other packages: it has no {', '.join(missing)}",
            hint="update the lock: shioenv system lock NAME",
        )


def _check_installed(base: Path, lock: Lock, time: int) -> None:
    """Raise SystemBuildError if the installed packages are not those of the lock."""
    with base.open("rb") as content:
        installed = image.package_versions(image.read_base(base, time), content)
    different = set(installed.items()) ^ {(one.name, one.version) for one in lock.files}
    if different:
        names = ", ".join(sorted({f"{name} {version}" for name, version in different}))
        raise SystemBuildError(
            f"mmdebstrap did not install exactly the locked packages: {names}",
            hint="update the lock: shioenv system lock NAME",
        )


def run_mmdebstrap(command: list[str], time: int, cache: Path, report: Progress) -> None:
    """Run mmdebstrap. Newer files in the result get `time`. Errors as for `bootstrap`."""
    environment = {name: os.environ[name] for name in os.environ if _OF_THE_HOST.fullmatch(name)}
    environment |= {"SOURCE_DATE_EPOCH": str(time), **_ENVIRONMENT}
    log: list[str] = []
    # Ctrl-C waits until the process is known, since nobody else would end it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", process_group=0,
        )  # fmt: skip
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    with process:
        assert process.stderr is not None
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for line in process.stderr:
                log.append(line.rstrip())
                if line.startswith("I: ") and "tempdir" not in line:
                    report(f"  {line[3:].rstrip()}")
            status = process.wait()
        except BaseException:  # on SIGTERM, mmdebstrap unmounts and removes its files
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
    if status != 0:
        _bootstrap_failed(status, log, command[-1], cache)


_CACHE_BYTES, _UNPACKED_BYTES = 800_000_000, 800_000_000
"""Temporary space in bytes: in the cache (base, archive and system), and elsewhere for unpacked
packages."""

ROOM_BYTES = 1_100_000_000
"""Temporary space in bytes for a build if the cache is on the same disk as temporary files."""


def _refuse_full_disk(cache: Path, failed: bool = False) -> None:
    """Raise SystemStorageError, which names the disk, if a disk has too little free space.

    The cache's disk holds the tarball that mmdebstrap writes. mmdebstrap unpacks the packages on
    the disk of temporary files, and removes them if it fails. `failed` is true if mmdebstrap has
    failed because a disk was full.
    """
    temporary = Path(tempfile.gettempdir())
    together = temporary.stat().st_dev == cache.stat().st_dev
    needed, free = ROOM_BYTES if together else _CACHE_BYTES, shutil.disk_usage(cache).free
    if free < needed or (failed and together):
        raise SystemStorageError(
            f"the disk is full: {cache} has {free / 1e6:,.0f} MB free",
            hint=f"a build temporarily needs {needed / 1e6:,.0f} MB; use SHIOENV_CACHE=DIR for "
            "another disk",
        )
    free = shutil.disk_usage(temporary).free
    if not together and (failed or free < _UNPACKED_BYTES):
        raise SystemStorageError(
            f"the disk is full: {temporary}, where mmdebstrap unpacks packages, has "
            f"{free / 1e6:,.0f} MB free",
            hint=f"a build temporarily needs {_UNPACKED_BYTES / 1e6:,.0f} MB there; use TMPDIR=DIR "
            "for another disk",
        )


def _bootstrap_failed(status: int, log: list[str], source: str, cache: Path) -> None:
    text = "\n".join(log[-25:])
    if re.search(r"No space left on device|Disk quota exceeded|enough free space", text):
        _refuse_full_disk(cache, failed=True)
    if re.search(r"uid_map|newuidmap|subuid|unshare.*(denied|not permitted)", text):
        raise HostError(
            f"mmdebstrap cannot create a user namespace:\n{text}",
            hint="run `shioenv doctor`, build as root, or give --rootfs-tar FILE",
        )
    hint = "see the lines above"
    if re.search(r"NO_PUBKEY|not signed|isn't signed", text):
        hint = "the archive's keys are missing: apt-get install debian-archive-keyring " \
               "(ubuntu-keyring for an Ubuntu system)"  # fmt: skip
    elif re.search(
        r"Could not (resolve|connect)|Temporary failure|Failed to fetch|timed out", text
    ):
        hint = f"no mirror replied, such as {source!r}; --rootfs-tar FILE needs none"
    raise SystemBuildError(f"mmdebstrap failed with status {status}:\n{text}", hint=hint)


def mmdebstrap_command(distribution: Distribution, target: Path, sources: list[str]) -> list[str]:
    """Return the command that makes the base, as root or as an ordinary user.

    Strings of the declaration follow `--` or the name of an option, so none can be parsed as an
    option. The patterns in `declare` accept neither strings with line breaks nor file names.
    """
    mode = "root" if os.geteuid() == 0 else "unshare"
    command = [
        "mmdebstrap", "--variant=essential", f"--mode={mode}", "--format=tar",
        f"--architectures={distribution.architecture}",
        f"--include={','.join(distribution.packages)}",
    ]  # fmt: skip
    command += [f"--aptopt={option}" for option in _apt_options()]
    command.append('--aptopt=APT::Sandbox::User "root"')
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in distribution.leave_out]
    command += [f"--dpkgopt=path-include={pattern}" for pattern in distribution.keep]
    if distribution.keyring and Path(distribution.keyring).exists():
        command.append(f"--keyring={distribution.keyring}")
    command.append(f"--customize-hook={_ONE_LOCALE_FILE}")
    return [*command, "--", distribution.suite, str(target), *sources]


def _apt_options() -> list[str]:
    """Return the settings of the host's apt that downloads may depend on, such as proxies."""
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


def _proxies() -> dict[str, str]:
    """Return the proxies of the host's apt: addresses by scheme."""
    pattern = re.compile(r'Acquire::(https?)::Proxy "(https?://[^"]+)"', re.IGNORECASE)
    matches = (pattern.fullmatch(line) for line in _apt_options())
    return {match[1].lower(): match[2] for match in matches if match}


def archives(sources: list[str]) -> list[str]:
    """Return the archives of one-line apt sources: addresses, or directories of this host."""
    words = (re.sub(r"\[[^\]]*\]", "", line).split()[1] for line in sources)
    return list(dict.fromkeys(re.sub(r"copy:/*", "/", word) for word in words))


def apt_sources(distribution: Distribution, etc: Path = Path("/etc")) -> list[str]:
    """Return one-line apt sources for the distribution: the host's, else the declared mirrors.

    If the host runs another release of the same family, the host's mirrors are used with the suites
    of the distribution. Packages in a directory of the host (`file:`) are copied, because the new
    root has no such directory. `etc` is the host's configuration directory.
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
    """Parse an os-release file into values by name."""
    pairs = re.findall(r"^([A-Z_]+)=\"?([^\"\n]*)\"?$", text, re.MULTILINE)
    return dict(pairs)


def _host_sources(etc: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield (options, URI, suite, components) for each binary source of the host's apt."""
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
