"""Build and test the package on other hosts, systems and file systems.

    python soak/hosts.py
    python soak/hosts.py --only "host debian-13" "cache on xfs" --count 200

A **host** is a root filesystem made by mmdebstrap and kept in the cache directory, with a compiler
and its own C library and Python. It is entered by `pivot_root` in a mount namespace (a chroot gets
no user namespaces) and has a tmpfs for /tmp. The checkout is copied into it and built there. Then
`shioenv doctor` must find everything, tests must pass, and the inputs of `--count` records must
change their shells as here. A **system** is another release, built here: its bash must be served,
and its sandbox must meet the contract. A **cache** is on another file system, with /tmp on a tmpfs:
tests must pass.

Every failure is a violation. Checks that are impossible here (an archive that does not answer, a
file system that this kernel lacks) are reported, and are not violations. Root only. Half an hour on
two idle cores the first time, and 2 GB in the cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from common import parser, report
from shioenv.behavior.capture import SHELL_FIELDS
from shioenv.dataset.record_reader import read_records
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record, different_fields
from shioenv.errors import ShioenvError, SystemBuildError
from shioenv.files.durable import cache_directory
from shioenv.sandbox.backends import default_sandbox
from shioenv.system.store import build_system
from support import sandbox_conformance

ROOT = Path(__file__).parents[1]

HOSTS = {"debian-13": "trixie"}
"""The suites of hosts by name."""

SYSTEMS = {"debian-11": "bullseye", "debian-13": "trixie"}
"""The suites of systems by name, declared as `debian-12` is; `ubuntu-24.04` is declared itself."""

MAKERS = {
    "tmpfs": (),
    "ext4": ("mkfs.ext4", "-q"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
"""Programs that make a file system in a file, by its name."""

MIRROR = "http://deb.debian.org/debian"

PACKAGES = (
    *("binutils", "gcc", "libc6-dev", "python3", "python3-venv"),
    *("iproute2", "kmod", "libseccomp2", "mount", "procps", "uidmap"),
    *("debian-archive-keyring", "mmdebstrap"),
)
"""Packages of a host: those that `make setup` installs, and programs that the tests call."""

CORE = "./packages/shioenv"
"""The package under test, in the checkout."""

WHEELS = {"hatchling", "hypothesis", "jsonpatch", "pytest", "pytest-timeout", "pytest-xdist"}
"""Development tools that the tests below need."""

TESTS = (
    *(f"packages/shioenv/tests/{name}" for name in ("conformance", "spec")),
    *(f"packages/shioenv/tests/unit/{name}" for name in ("sandbox", "behavior")),
    "tests/packaging/test_guest_library.py",
)
"""Tests that depend on the host, its C library and its file systems."""

SHELL = (*SHELL_FIELDS, "cwd", "umask", "groups")
"""Fields of a context that only the shell can report."""

GENERATE = ("--seed", "7", "--budget", "2", "--no-cache")

ENTER = """
set -e
root=$1; shift
mount --bind "$root" "$root"
cd "$root"
for place in proc sys dev; do mount --rbind /$place $place; done
mount -t tmpfs -o mode=1777,size=8g none tmp
pivot_root . mnt
exec /bin/sh -ec 'umount -l /mnt; cd "$1"; shift; exec "$@"' sh "$@"
"""

Violations = list[dict[str, Any]]


class Skipped(Exception):  # noqa: N818 - it is no error
    """Cannot be tried here; the argument gives the reason."""


def said(command: Sequence[str | Path], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and capture its output."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, **how)


def demanded(command: Sequence[str | Path], **how: Any) -> str:
    """Return a program's output. SystemExit where it fails."""
    done = said(command, **how)
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {tail(done)}")
    return done.stdout


def tail(done: subprocess.CompletedProcess[str]) -> str:
    """Return the end of a program's output."""
    return (done.stdout + done.stderr).strip()[-2000:]


# ---- hosts ----


class Host:
    """Another root filesystem as this kernel's host; its parts are kept, and made if missing."""

    def __init__(self, suite: str, kept: Path) -> None:
        self.root, self._wheels = kept / suite, kept / f"{suite}-wheels"
        if not self.root.exists():
            self._make(suite)
        self._take_checkout()
        self._install()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the host in its checkout."""
        environment = {
            "PATH": "/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root", "LC_ALL": "C.UTF-8", "SHIOENV_CACHE": "/var/cache/shioenv",
        }  # fmt: skip
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]
        return said([*enter, self.root, "/checkout", *command], env=environment)

    def demand(self, *command: str) -> str:
        """Return the program's output. SystemExit where it fails."""
        done = self.run(*command)
        if done.returncode:
            raise SystemExit(f"{self.root}: {' '.join(command)}: {tail(done)}")
        return done.stdout

    def _make(self, suite: str) -> None:
        part = self.root.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        done = said(
            ["mmdebstrap", "--mode=root", "--variant=apt", f"--include={','.join(PACKAGES)}",
             suite, part, f"deb {MIRROR} {suite} main"]
        )  # fmt: skip
        if done.returncode:
            shutil.rmtree(part, ignore_errors=True)
            raise Skipped(f"{suite} cannot be made: {tail(done)[-300:]}")
        part.rename(self.root)

    def _take_checkout(self) -> None:
        """Copy only files that git lists for this checkout; the bases of systems as bytes."""
        checkout = self.root / "checkout"
        shutil.rmtree(checkout, ignore_errors=True)
        for name in demanded(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT).split():
            target = checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target, follow_symlinks=False)
        bases = self.root / "var/cache/shioenv/bases"
        bases.mkdir(parents=True, exist_ok=True)
        for base in (cache_directory() / "bases").glob("*.tar"):
            if not (bases / base.name).exists():
                shutil.copy(base, bases)

    def _install(self) -> None:
        """Install the core package, built by the host's compiler, and wheels that were downloaded
        here.
        """
        core = tomllib.loads((ROOT / "packages/shioenv/pyproject.toml").read_text())
        groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
        tools = (tool for tool in groups["dev"] if name_of(tool) in WHEELS)
        wanted = [*core["project"]["dependencies"], *tools]
        version = self.demand("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        tags = [f"manylinux{tag}_x86_64" for tag in ("_2_28", "_2_27", "_2_17", "2014")]
        demanded(
            [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:",
             f"--python-version={version.strip()}", f"--dest={self._wheels}",
             *(f"--platform={tag}" for tag in (*tags, "any")), *wanted]
        )  # fmt: skip
        shutil.copytree(self._wheels, self.root / "wheels", dirs_exist_ok=True)
        install = ("/venv/bin/pip", "install", "-q", "--no-index", "--find-links=/wheels")
        self.demand("python3", "-m", "venv", "/venv")
        self.demand(*install, *wanted)
        self.demand(*install, "--no-deps", "--no-build-isolation", "--force-reinstall", CORE)


def name_of(requirement: str) -> str:
    """Return the distribution's name in a requirement."""
    return requirement.partition(">")[0].partition("[")[0]


def on_host(name: str, count: int, kept: Path) -> Iterator[dict[str, Any]]:
    """Yield the violations on a host; the last ones come from the comparison of records."""
    host = Host(HOSTS[name], kept)
    built = host.run("shioenv", "system", "build")
    if "served late" not in built.stderr and "already built" not in built.stderr:
        yield {"what": "the build", "said": tail(built)}
    examined = json.loads(host.run("shioenv", "doctor", "--json").stdout)
    for check in examined["checks"]:
        if not check["ok"] and check["needed"]:
            yield {"what": f"doctor: {check['name']}", "said": check["detail"]}
    yield from failing(lambda *options: host.run("python", "-m", "pytest", *options))
    here, there = kept / "here", host.root / "there"
    for directory in (here, there):
        shutil.rmtree(directory, ignore_errors=True)
    asked = ("generate", "--count", str(count), *GENERATE)
    demanded([sys.executable, "-m", "shioenv.cli.main", *asked, here])
    host.demand("shioenv", *asked, "/there")
    yield from differing([*read_records(here)], [*read_records(there)])


def failing(run: Callable[..., subprocess.CompletedProcess[str]]) -> Iterator[dict[str, Any]]:
    """Yield the tests that fail twice, the second time alone: under load some time out.

    `run` calls pytest with these options.
    """
    if run("-q", "-n", "2", *TESTS).returncode:
        again = run("-q", "--last-failed", "--last-failed-no-failures", "none", *TESTS)
        if again.returncode:
            yield {"what": "tests", "said": tail(again)}


def differing(here: Sequence[Record], there: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield the differences between hosts in inputs' shell changes, unless volatile on either.

    Visible properties of files (sizes and orders of directories, inodes) depend on the file system.
    """
    changing = [sum(map(bool, map(of_shell, records))) for records in (here, there)]
    if changing[0] != changing[1] or not changing[0]:
        yield {"what": "records with changes of the shell", "here and there": changing}
    if [record.input for record in here] != [record.input for record in there]:
        yield {"what": "records", "said": "they are of other inputs"}
        return
    for one, other in zip(here, there, strict=True):
        if one.volatile or other.volatile:
            continue
        if of_shell(one) != of_shell(other) or one.shell_state_known != other.shell_state_known:
            fields = different_fields(one, other)
            yield {"what": "a record", "input": one.input, "fields": fields}


def of_shell(record: Record) -> list[Any]:
    """Return the changes of its shell by a record's input."""
    operations = ContextPatch.from_json(record.context_patch).operations
    return [each for each in operations if each[1].split("/")[1] in SHELL]


# ---- systems ----


def declared(name: str, directory: Path) -> Path:
    """Return a file that declares a system like `debian-12`, with another suite."""
    text = (ROOT / "packages/shioenv/src/shioenv/systems/debian-12.toml").read_text()
    path = directory / f"{name}.toml"
    path.write_text(text.replace("debian-12", name).replace("bookworm", SYSTEMS[name]))
    return path


def as_system(name: str, kept: Path) -> Iterator[dict[str, Any]]:
    """Yield the violations on a system of another release."""
    try:
        system = build_system(str(declared(name, kept)) if name in SYSTEMS else name)
    except SystemBuildError as error:
        raise Skipped(f"{error.message.strip()[-300:]}") from None
    except ShioenvError as error:
        yield {"what": "the build", "said": str(error)}
        return
    try:
        with default_sandbox(system, sandbox_conformance.LIMITS) as sandbox:
            for check in sandbox_conformance.CHECKS:
                try:
                    check(sandbox)
                except AssertionError as error:
                    yield {"what": check.__name__, "said": str(error)[:500]}
    except ShioenvError as error:
        yield {"what": "a sandbox", "said": str(error)}


# ---- file systems ----


def with_cache(kind: str, kept: Path) -> Iterator[dict[str, Any]]:
    """Run tests with the cache on a file system of this kind and /tmp on a tmpfs."""
    with mounted(kind, kept) as cache:
        (cache / "shioenv/bases").mkdir(parents=True)
        for base in (cache_directory() / "bases").glob("*.tar"):
            shutil.copy(base, cache / "shioenv/bases")
        script = 'mount -t tmpfs -o mode=1777,size=8g none /tmp; exec "$@"'
        pytest = [
            "unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh",
            sys.executable, "-m", "pytest",
        ]  # fmt: skip
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "TMPDIR": "/tmp"}
        yield from failing(lambda *options: said([*pytest, *options], cwd=ROOT, env=environment))


@contextmanager
def mounted(kind: str, kept: Path) -> Iterator[Path]:
    """Mount a new file system of this kind; yield its root."""
    place = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=kept))
    file = place.with_suffix(".image")
    try:
        if MAKERS[kind]:
            if shutil.which(MAKERS[kind][0]) is None:
                raise Skipped(f"{MAKERS[kind][0]} is not installed")
            with file.open("wb") as image:
                image.truncate(4 << 30)
            demanded([*MAKERS[kind], file])
            options = ["-o", "loop", str(file)]
        else:
            options = ["-o", "size=4g", "none"]
        done = said(["mount", "-t", kind, *options, place])
        if done.returncode:
            raise Skipped(tail(done))
        try:
            yield place
        finally:
            demanded(["umount", place])
    finally:
        place.rmdir()
        file.unlink(missing_ok=True)


# ---- all of it ----


def main() -> int:
    """Run the check; exit status 1 for any violation."""
    options = parser(__doc__, count=1000)
    options.add_argument("--only", nargs="+", metavar="TRIAL", help="these, by their names")
    asked = options.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("mounts are root's to make")
    kept = cache_directory() / "hosts"
    kept.mkdir(parents=True, exist_ok=True)
    build_system(asked.system)
    trials: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        **{f"host {name}": partial(on_host, name, asked.count, kept) for name in HOSTS},
        **{f"system {name}": partial(as_system, name, kept) for name in (*SYSTEMS, "ubuntu-24.04")},
        **{f"cache on {kind}": partial(with_cache, kind, kept) for kind in MAKERS},
    }
    if unknown := set(asked.only or ()) - trials.keys():
        raise SystemExit(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(trials)}")
    rows, violations = [], []
    outcomes: Counter[str] = Counter()
    for name, trial in trials.items():
        if asked.only and name not in asked.only:
            continue
        try:
            wrong = [{"trial": name, **one} for one in trial()]
            outcome = "violated" if wrong else "as it should be"
            rows.append((name, outcome))
            violations += wrong
        except Skipped as why:
            outcome = "not tried"
            rows.append((name, f"not tried: {why}"))
        outcomes[outcome] += 1
        print(f"{name}: {rows[-1][1]}", file=sys.stderr, flush=True)
    return report(
        {"records compared": asked.count, **outcomes},
        violations,
        as_json=asked.json,
        tables=[("trials", ("trial", "outcome"), rows)],
    )


if __name__ == "__main__":
    sys.exit(main())
