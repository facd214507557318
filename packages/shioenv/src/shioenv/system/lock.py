"""Write the lock of a system from a build's packages."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from shioenv.errors import SystemBuildError
from shioenv.files.durable import atomic_write, cache_directory
from shioenv.system import build as building
from shioenv.system import image
from shioenv.system.bootstrap import (
    Packages,
    Progress,
    apt_sources,
    archives,
    mmdebstrap_command,
    run_mmdebstrap,
)
from shioenv.system.declare import (
    DEFAULT_SYSTEM,
    Distribution,
    load_declaration,
    read_text,
    systems_directory,
)
from shioenv.system.packages import Lock, format_lock, lock_text, parse_lock
from shioenv.system.store import build_system, find_system

_SNAPSHOTS = {
    "debian": "http://snapshot.debian.org/archive/{archive}/{date}/",
    "ubuntu": "http://snapshot.ubuntu.com/{archive}/{date}/",
}


def lock_system(
    name: str | None = None,
    *,
    build: str | None = None,
    same_packages: bool = False,
    report: Progress = building.silent,
) -> Path:
    """Write the lock of a declared system beside its declaration, and return its path.

    The packages are those of the built system `build`, else those that the mirrors serve now. With
    `same_packages` the locked packages remain, and only the digest is determined again. Errors:
    SystemBuildError if the mirrors no longer list a package of the build, and those of
    `build_system`.
    """
    name = name or DEFAULT_SYSTEM
    declaration = load_declaration(name)
    text, file = lock_text(name), Path(str(systems_directory().joinpath(f"{name}.lock")))
    if name.endswith(".toml"):
        file = Path(name).with_suffix(".lock")
    if same_packages:
        if text is None:
            raise SystemBuildError(f"{name} has no lock", hint=f"shioenv system lock {name}")
        lock = replace(parse_lock(text, str(file)), digest="")
        cache = cache_directory()
        with building.system_storage_errors(cache), building.build_lock(cache, report):
            digest = building.build(
                declaration,
                read_text(name),
                tree=building.load_trees(declaration),
                cache=cache,
                base=Packages(lock),
                report=report,
            )
        lock = replace(lock, digest=digest)
    else:
        system = find_system(build) if build else build_system(name, unlocked=True, report=report)
        versions = [f"{package}={version}" for package, version in system.packages.items()]
        lines = tuple(_served(declaration.distribution, versions, image.base_time(declaration)))
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        named = (
            address.rstrip("/").rpartition("/")[2]
            for address in archives(list(declaration.distribution.mirrors))
        )
        snapshot = _SNAPSHOTS[declaration.distribution.family]
        snapshots = tuple(snapshot.format(archive=archive, date=date) for archive in named)
        lock = Lock(schema=1, digest=system.digest, snapshots=snapshots, packages=lines)
    with building.system_storage_errors(file):
        atomic_write(file, format_lock(declaration.name, lock).encode())
    return file


def _served(distribution: Distribution, versions: list[str], time: int) -> Iterator[str]:
    """Yield a line of the lock for each `NAME=VERSION`, from the signed indices of the mirrors.

    Errors: SystemBuildError, which lists the versions that are not in the indices.
    """
    with tempfile.TemporaryDirectory(prefix="shioenv-lock-") as scratch:
        listed = Path(scratch) / "listed"
        command = mmdebstrap_command(distribution, Path("-"), apt_sources(distribution))
        dropped = ("--variant=", "--format=", "--include=", "--customize-hook=")
        command = [word for word in command if not word.startswith(dropped)]
        show = f'apt-cache show {" ".join(versions)} > "$1/listed" || true'
        command[1:1] = [
            "--variant=custom",
            "--format=null",
            f"--customize-hook={show}",
            f"--customize-hook=download /listed {listed}",
        ]
        run_mmdebstrap(command, time, Path(scratch), building.silent)
        stanzas = listed.read_text(encoding="utf-8").split("\n\n")
    found: dict[str, str] = {}
    for stanza in stanzas:
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.MULTILINE))
        if "Filename" in fields:
            names = ("Package", "Version", "Architecture", "Size", "SHA256", "Filename")
            line = " ".join(fields[name].removeprefix("./") for name in names)
            found.setdefault("{Package}={Version}".format(**fields), line)
    missing = [version for version in versions if version not in found]
    if missing:
        raise SystemBuildError(
            f"the mirrors no longer list {', '.join(missing)}",
            hint="without --build, the packages are those that the mirrors serve now",
        )
    for version in versions:
        yield found[version]
