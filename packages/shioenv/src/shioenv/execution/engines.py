"""Executors by the names that the command line has for them."""

from __future__ import annotations

from typing import Final, cast

from shioenv.errors import UsageError, did_you_mean
from shioenv.execution.job import Executor
from shioenv.execution.local import LocalExecutor
from shioenv.guests import load_guest

ENGINES = ("local", "ray")
"""Names of executors: processes of this machine, or of the nodes of a Ray cluster."""

GROUP: Final = "shioenv.executors"
"""The group of entry points in which other packages provide the executors except `local`."""


def executor_named(
    name: str, workers: int | None = None, address: str | None = None, *, cache_bytes: int = 0
) -> Executor:
    """The executor with a name of `ENGINES`.

    The other arguments are as `LocalExecutor` takes them; `address` is a cluster's. Errors:
    UsageError for another name, or for an address where the executor is not `ray`.
    MissingExtraError where no installed package provides the executor. Those of its class.
    """
    if name not in ENGINES:
        raise UsageError(f"no engine is called {name!r}", hint=did_you_mean(name, ENGINES))
    if name == "ray":
        kind = load_guest(GROUP, name, feature=f"--engine {name}", extra="backends")
        return cast("Executor", kind(workers, address=address, cache_bytes=cache_bytes))
    if address is not None:
        raise UsageError("an address is a Ray cluster's", hint="--engine ray --address ADDRESS")
    return LocalExecutor(workers, cache_bytes=cache_bytes)
