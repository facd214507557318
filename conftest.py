"""Shared fixtures of tests: the default system, built here if it is missing."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.system.store import System, build_system
from support.needs import NEEDS, lacked, told, with_sbin
from support.nightly import SWITCH

os.environ["PATH"] = with_sbin(os.environ.get("PATH", os.defpath))

settings.register_profile(
    "suite", deadline=None
)  # how long an example takes is the host's business
settings.load_profile("suite")

# Typer rebuilds the tree of all commands for each call.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore

# A shell that runs the suite in the background makes it ignore Ctrl-C, which tests send to
# programs, and SIGQUIT, which Bash's `trap` would list.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session")
def system() -> System:
    """The default system. Building takes a lock, so one test process builds and the others wait."""
    return build_system()


@pytest.fixture(scope="module")
def observer(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


FIRST = frozenset({"unit", "docs"})
"""Directories of tests that need no system, except those that use its fixtures."""


USES_SYSTEM = re.compile(rb'\b(?:system|observer): |"(?:system|observer)"')
"""Occurs in each file with a test that uses the fixture `system` or `observer`."""


def in_first_directories(path: Path, config: pytest.Config) -> bool:
    """Whether a file is in one of `FIRST`, wherever the clone itself may lie."""
    return not FIRST.isdisjoint(Path(os.path.relpath(path, config.rootpath)).parts)


def needs_no_system(item: pytest.Item) -> bool:
    """Whether a test belongs to the first layer."""
    fixtures = getattr(item, "fixturenames", ())
    return in_first_directories(item.path, item.config) and not {"system", "observer"} & {*fixtures}


def runs(item: pytest.Item, layer: str | None) -> bool:
    """Whether a test runs in a layer, or without one by day."""
    at_night = item.get_closest_marker("nightly") is not None
    if layer == "nightly":
        return at_night or item.get_closest_marker("larger") is not None
    return not at_night and (layer is None or needs_no_system(item) is (layer == "first"))


class FileScheduling(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    """Keep the tests of a file in one worker, which makes the file's fixtures once.

    Tests of a group stay together across files.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid else scope


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


SKIPPED = pytest.StashKey[dict[str, list[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--layer",
        choices=("first", "rest", "nightly"),
        help="first: the tests that need no system, with an empty cache; rest: the others that run "
        "by day; nightly: those that are too long for the day",
    )
    parser.addoption("--skipped-to", type=Path, help="where to write the ids of skipped tests")
    parser.addoption(
        "--complete",
        action="store_true",
        help="fail where a test is skipped for want of what `make setup-all` installs",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hide the built systems from the first layer, so that a test there that needs one fails."""
    if config.getoption("--layer") == "nightly":
        os.environ[SWITCH] = "1"
    if config.getoption("--layer") == "first" and not hasattr(config, "workerinput"):
        empty = tempfile.mkdtemp(prefix="shioenv-no-system.")
        os.environ["SHIOENV_CACHE"] = empty
        config.add_cleanup(lambda: shutil.rmtree(empty, ignore_errors=True))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Keep a layer from importing files without its tests: the first what may build a system."""
    layer = config.getoption("--layer")
    if layer not in {"first", "rest"} or collection_path.suffix != ".py":
        return None
    quick = in_first_directories(collection_path, config)
    if layer == "rest":
        return True if quick and not USES_SYSTEM.search(collection_path.read_bytes()) else None
    return None if quick else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of a layer, and any test that is named by its id."""
    layer = config.getoption("--layer")
    if layer is None and any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if not runs(item, layer)]
    if layer == "first":
        _refuse_hidden({item.path for item in left_out if not needs_no_system(item)})
    items[:] = [item for item in items if runs(item, layer)]
    config.hook.pytest_deselected(items=left_out)


def _refuse_hidden(paths: Iterable[Path]) -> None:
    """Refuse files whose tests of a system the other layer would not find."""
    for path in paths:
        if not USES_SYSTEM.search(path.read_bytes()):
            raise pytest.UsageError(f"{path}: declare `system` or `observer` with its type")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without collecting garbage: what is imported meanwhile stays.

    Then collect it seldom: caches, as of grammars, keep most objects that tests make.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # one of many processes: the first counts for all
        return
    skipped = lacked(reporter.stats.get("skipped", []))
    session.config.stash[SKIPPED] = skipped
    if file := session.config.getoption("--skipped-to"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{name}\n" for name in skipped), encoding="utf-8")
    installable = any(NEEDS[name].package for names in skipped.values() for name in names)
    built = Path(os.environ.get("SHIOENV_CACHE", ""), "systems")
    if session.config.getoption("--layer") == "first" and built.exists():
        print("\na test of the first layer built a system")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if session.config.getoption("--layer") and session.exitstatus == 5:
        session.exitstatus = pytest.ExitCode.OK  # this package has no tests of this layer
    if session.config.getoption("--complete") and installable and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print at the end which tests were skipped, and their missing requirements."""
    if skipped := config.stash.get(SKIPPED, {}):
        print(told(skipped))
