"""What tests share: the built default system, built here where it is not there yet."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.system.store import System, build_system

settings.register_profile(
    "suite", deadline=None
)  # how long an example takes is the host's business
settings.load_profile("suite")

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
