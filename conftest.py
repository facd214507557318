"""What tests share: the built default system, built here where it is not there yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.system.store import System, build_system
from support.needs import NEEDS, lacked, told, with_sbin

os.environ["PATH"] = with_sbin(os.environ.get("PATH", os.defpath))

settings.register_profile(
    "suite", deadline=None
)  # how long an example takes is the host's business
settings.load_profile("suite")

# Typer builds the tree of all commands anew for each call.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore

# A shell that runs the suite in the background has it ignore Ctrl-C, which tests send to programs.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def system() -> System:
    """The default system. Building takes a lock, so one test process builds and the others wait."""
    return build_system()


@pytest.fixture(scope="module")
def observer(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


SKIPPED = pytest.StashKey[dict[str, list[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped-to", type=Path, help="where to write the ids of skipped tests")
    parser.addoption(
        "--complete",
        action="store_true",
        help="fail where a test is skipped for want of what `make setup-all` installs",
    )


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
    if session.config.getoption("--complete") and installable and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Says behind everything else which tests were skipped for want of what."""
    if skipped := config.stash.get(SKIPPED, {}):
        print(told(skipped))
