"""Requirements of tests that `make setup` does not install, and how to get them.

A test with such a requirement is marked `@needs("qemu-system-x86_64")`; nothing else skips.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT


@dataclass(frozen=True)
class Need:
    """A program, a module, a right, or a feature of the kernel."""

    met: Callable[[], bool]
    package: str = ""
    """The Debian package that `make setup-all` installs."""
    otherwise: str = ""
    """The reason why `make setup-all` does not install it, and where its tests run."""


SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Directories of mkfs.*; Debian's ordinary users, and root after `su`, lack them in PATH."""


def with_sbin(path: str) -> str:
    """Return a search path with the directories of `SBIN`, last where they are not in it."""
    known = path.split(os.pathsep)
    return os.pathsep.join([*known, *(place for place in SBIN if place not in known)])


def _has_program(name: str) -> bool:
    return shutil.which(name) is not None


def _has_module(name: str) -> bool:
    return find_spec(name) is not None


def system_with_git() -> str | None:
    """The name of a built system that has git; None without one."""
    from shioenv.system.store import System, list_systems

    systems = (each for _, each in list_systems() if isinstance(each, System))
    return next((each.name for each in systems if "git" in each.programs), None)


def _is_built(name: str) -> bool:
    from shioenv.errors import ShioenvError
    from shioenv.system.store import find_system

    try:
        return bool(find_system(name))
    except ShioenvError:
        return False


def _harbor_lints() -> bool:
    """Whether Harbor is 0.25 or newer."""
    return _has_module("harbor") and _has_module("harbor.lint")


def _mounts(file_system: str) -> bool:
    """Whether this kernel can mount an image of such a file system."""
    known = Path("/proc/filesystems").read_text(encoding="ascii").split()
    modules = Path("/lib/modules", os.uname().release, "kernel/fs", file_system)
    return Path("/dev/loop-control").exists() and (file_system in known or modules.exists())


def _compiler_is(version: str) -> bool:
    if shutil.which("gcc") is None:
        return False
    told = subprocess.run(["gcc", "-dumpfullversion"], check=True, capture_output=True, text=True)
    return told.stdout.strip() == version


def _kernel_is(*least: int) -> bool:
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) >= least


PROGRAMS = {
    "btrfs": "btrfs-progs",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "cpio": "cpio",
    "mkfs.btrfs": "btrfs-progs",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "node": "nodejs",
    "npm": "npm",
    "patch": "patch",
    "qemu-system-x86_64": "qemu-system-x86",
    "ssh": "openssh-client",
    "zstd": "zstd",
}
"""The Debian package of each program."""

SITE = ROOT / ".site"
"""The environment that `make site` makes."""

TRAINING = "larger than all the rest: `make test-train`"
FRONTS = "a framework's own environment: `make test-fronts`"
GUESTS = ("shioenv-agents", "shioenv-eval", "shioenv-model", "shioenv-paper", "shioenv-serve")
HARBOR = "an environment of its own, of Python 3.12 or newer: `make test-fronts`"
KERNEL = "the kernel's: another host"

NEEDS = {
    **{name: Need(partial(_has_program, name), package) for name, package in PROGRAMS.items()},
    **{
        name: Need(partial(_has_module, name), otherwise=TRAINING)
        for name in ("sb3_contrib", "tokenizers", "torch", "transformers")
    },
    **{
        name: Need(partial(_has_module, name), otherwise=FRONTS)
        for name in (
            "e2b",
            "inspect_ai",
            "mcp",
            "openenv",
            "starlette",
            "torchrl",
            "trl",
            "verifiers",
        )
    },
    "ray.rllib": Need(lambda: all(map(_has_module, ("ray", "torch", "tree"))), otherwise=FRONTS),
    **{name: Need(partial(_has_module, name), otherwise=HARBOR) for name in ("harbor", "nemo_gym")},
    **{
        name: Need(
            partial(_has_module, name.replace("-", "_")),
            otherwise="a package of this clone: `make setup`",
        )
        for name in GUESTS
    },
    "harbor lint": Need(_harbor_lints, otherwise=HARBOR),
    **{
        f"{name} in the kernel": Need(partial(_mounts, name), otherwise=KERNEL)
        for name in ("btrfs", "ext4", "xfs")
    },
    "git in a system": Need(
        lambda: system_with_git() is not None,
        otherwise="a system of your own: docs/how-to/systems.md, with git in place of jq",
    ),
    "debian-12-dev": Need(
        partial(_is_built, "debian-12-dev"),
        otherwise="built in minutes: `shioenv system build debian-12-dev`",
    ),
    "zensical": Need(
        (SITE / "bin" / "zensical").exists, otherwise="the site's own environment: `make site`"
    ),
    "gcc 12.2.0": Need(partial(_compiler_is, "12.2.0"), otherwise="Debian 12's compiler"),
    "Linux 6.16": Need(partial(_kernel_is, 6, 16), otherwise=KERNEL),
    "root": Need(lambda: os.geteuid() == 0, otherwise="a right: the suite run by root"),
}
"""Everything that a test may lack, by its name."""

MICROVM = ("qemu-system-x86_64", "mkfs.ext4", "zstd")
"""Requirements for building and running a microVM."""

MARK = "needs "

_GROUP = re.compile(r"@[^@\]]+$")  # that of pytest-xdist, after the parameters
"""The suffix that xdist appends to the id of a test of a group."""


def needs(*names: str) -> pytest.MarkDecorator:
    """A mark that skips a test with the names of what this host lacks. KeyError for a new name."""
    missing = _missing(names)
    return pytest.mark.skipif(bool(missing), reason=MARK + ", ".join(missing))


def needed_module(name: str) -> Any:
    """An imported module; without it the calling module of tests is skipped whole."""
    if missing := _missing([name]):
        pytest.skip(MARK + ", ".join(missing), allow_module_level=True)
    return pytest.importorskip(name)


def _missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not NEEDS[name].met()]


def lacked(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> dict[str, list[str]]:
    """Missing requirements of each skipped test or test module; by its id, sorted."""
    found = {}
    for report in reports:
        assert isinstance(report.longrepr, tuple), report.longrepr
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        assert reason.startswith(MARK), f"{report.nodeid} is skipped by other means: {reason}"
        found[_GROUP.sub("", report.nodeid)] = reason.removeprefix(MARK).split(", ")
    return dict(sorted(found.items()))


def told(skipped: dict[str, list[str]]) -> str:
    """Return one line: the number of skipped tests by missing requirement, and the remedy."""
    counted = Counter(name for names in skipped.values() for name in names)
    packages = Counter[str]()
    others: dict[str, Counter[str]] = {}
    for name, count in counted.items():
        need = NEEDS[name]
        if need.package:
            packages[need.package] = max(packages[need.package], count)
        else:
            others.setdefault(need.otherwise, Counter())[name] = count
    parts = [f"{_counts(names)} ({how})" for how, names in sorted(others.items())]
    if packages:
        parts.insert(0, f"{_counts(packages)} (`make setup-all`, as root, installs all of these)")
    return f"{len(skipped)} skipped for want of " + "; ".join(parts)


def _counts(names: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(names.items()))
