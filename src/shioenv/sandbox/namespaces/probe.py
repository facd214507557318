"""Can the shell that inputs run in be told from a fresh `bash -c`? Asked once of each system.

The fork server depends on how a bash starts (`native/inside/preload.c`), so every system's own bash
is probed when it is built: the fastest way of serving inputs that gives the same output and exit
code as a newly executed bash for every probe is used, and a plain fresh bash where none does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources

from shioenv.errors import SandboxError
from shioenv.sandbox.base import Execution, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.wire import ShellMode
from shioenv.system.store import System

_VERDICT = "shell.json"
_UNSTABLE = re.compile(rb"(?<=pipe:\[)\d+|(?<=real )[\d.]+|(?<=user )[\d.]+|(?<=sys )[\d.]+")
"""What differs between any two runs of one fresh bash: numbers of pipes, measured times."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A probe that the shell under test answered differently from a fresh bash."""

    probe: str
    expected: tuple[int, bytes]
    """Exit code and output of the fresh bash."""
    answered: tuple[int, bytes]
    """Exit code and output of the shell under test."""


@cache
def probes() -> tuple[str, ...]:
    """All probes, in the order of the file."""
    text = resources.files(__package__).joinpath("probes.txt").read_text(encoding="utf-8")
    blocks = (
        "\n".join(line for line in block.splitlines() if not line.startswith("# "))
        for block in re.split(r"\n\n+", text)
    )
    return tuple(block for block in blocks if block.strip())


def _answer(execution: Execution) -> tuple[int, bytes]:
    return execution.exit_code, _UNSTABLE.sub(b"N", execution.output)


def divergences(sandbox: NamespaceSandbox, inputs: Sequence[str] | None = None) -> list[Divergence]:
    """The probes that tell the sandbox's shell from a fresh one; empty is what is wanted.

    A probe counts only where the shell under test twice gave an answer that a fresh bash did not
    give in three runs: what two fresh shells do not agree about tells nothing.
    """
    told: list[Divergence] = []
    for probe in probes() if inputs is None else inputs:
        request = Request(probe)
        expected = _answer(sandbox.run_fresh(request))
        answer = _answer(sandbox.run(request))
        if answer == expected:
            continue
        known = {expected, *(_answer(sandbox.run_fresh(request)) for _ in range(2))}
        again = _answer(sandbox.run(request))
        if answer not in known and again not in known:
            told.append(Divergence(probe, expected, again))
    return told


def choose_shell_mode(
    system: System, report: Callable[[str], None] = lambda line: None
) -> ShellMode:
    """Probes the system's bash; keeps the fastest mode that cannot be told from a fresh one."""
    verdict: dict[str, object] = {}
    chosen = ShellMode.FRESH
    for mode in (ShellMode.LATE, ShellMode.MAIN):
        try:
            with NamespaceSandbox(system, mode=mode) as sandbox:
                told = divergences(sandbox)
        except SandboxError as error:
            verdict[mode] = str(error)
            continue
        verdict[mode] = [divergence.probe for divergence in told]
        if not told:
            chosen = mode
            break
    report(
        f"shell: {len(probes())} probes, served {chosen}"
        if chosen is not ShellMode.FRESH
        else "shell: this system's bash cannot be served by a fork server; every input starts a "
        "fresh bash, which is slower, and its shell state stays unknown"
    )
    verdict["mode"] = chosen
    # Nobody's loss if it cannot be kept: the next opening probes again.
    with suppress(OSError):
        (system.path / _VERDICT).write_text(json.dumps(verdict, indent=1) + "\n")
    return chosen


def shell_mode(system: System) -> ShellMode:
    """The mode found when the system was probed; probes it now where that has not been done."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return ShellMode(json.loads((system.path / _VERDICT).read_text())["mode"])
    return choose_shell_mode(system)
