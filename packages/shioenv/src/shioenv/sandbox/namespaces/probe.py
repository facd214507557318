"""Test whether the fork server's shell behaves exactly like a fresh `bash -c`, once per system.

The fork server depends on how a bash starts (`native/inside/preload.c`), so the system's bash is
probed when the system is built. A mode of the fork server passes if every probe (an input) gets the
same output and exit code as from a newly executed bash. The fastest mode that passes is used. If no
mode passes, each input gets a newly executed bash, whose state cannot be read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources

from shioenv import native
from shioenv.errors import SandboxError
from shioenv.sandbox.base import Execution, Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.bootstrap import Progress
from shioenv.system.build import silent
from shioenv.system.store import System

_VERDICT = "shell.json"
_UNSTABLE = re.compile(rb"(?<=pipe:\[)\d+|(?<=real )[\d.]+|(?<=user )[\d.]+|(?<=sys )[\d.]+")
"""Matches output that differs between any two runs of a fresh bash: pipe numbers and times."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A probe for which the shell under test and a fresh bash differ."""

    probe: str
    expected: tuple[int, bytes]
    """Exit code and output of the fresh bash."""
    answered: tuple[int, bytes]
    """Exit code and output of the shell under test."""


@cache
def probes() -> tuple[str, ...]:
    """Return all probes, in the order of `probes.txt`."""
    text = resources.files(__package__).joinpath("probes.txt").read_text(encoding="utf-8")
    blocks = (
        "\n".join(line for line in block.splitlines() if not line.startswith("# "))
        for block in re.split(r"\n\n+", text)
    )
    return tuple(block for block in blocks if block.strip())


def _answer(execution: Execution) -> tuple[int, bytes]:
    return execution.exit_code, _UNSTABLE.sub(b"N", execution.output)


def divergences(sandbox: NamespaceSandbox, inputs: Sequence[str] | None = None) -> list[Divergence]:
    """Return the probes for which the sandbox's shell and a fresh bash differ; ideally none.

    `inputs` are the probes to try; None for all. A fresh bash runs a probe three times. The probe
    is a divergence if neither of two runs in the sandbox's shell has one of these results. So
    probes whose results vary between fresh shells are mostly not counted.
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


@dataclass(frozen=True, slots=True)
class ServingVerdict:
    """The mode of the fork server that a system's bash supports on this host."""

    mode: ShellMode
    reason: str = ""
    """Why each faster mode failed; "" for the fastest mode."""


def prove_shell(system: System, report: Progress = silent) -> ServingVerdict:
    """Probe the system's bash, and save the fastest mode that behaves like a fresh bash.

    The verdict is saved only if a mode passes, and is valid only for the installed library. If no
    mode passes, the bash is probed again the next time.
    """
    reasons: list[str] = []
    for mode in (ShellMode.LATE, ShellMode.MAIN):
        reason = _unfit(system, mode)
        if reason is None:
            report(f"shell: {len(probes())} probes passed, mode {mode}")
            verdict = ServingVerdict(mode, "; ".join(reasons))
            _keep(system, verdict)
            return verdict
        reasons.append(f"{mode}: {reason}")
    report(
        "shell: NOT SUPPORTED: the shell state cannot be read; scoring and recording on this "
        f"system need --without-shell-state ({'; '.join(reasons)})"
    )
    return ServingVerdict(ShellMode.FRESH, "; ".join(reasons))


def proven_shell(system: System, report: Progress = silent) -> ServingVerdict:
    """Return the saved verdict for the installed library; without one, probe the bash now."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads((system.path / _VERDICT).read_text())
        if kept["library"] == _library():
            return ServingVerdict(ShellMode(kept["mode"]), str(kept["reason"]))
    return prove_shell(system, report)


def _unfit(system: System, mode: ShellMode) -> str | None:
    """Return why the system's bash does not support this mode; None if it does."""
    try:
        with NamespaceSandbox(system, mode=mode) as sandbox:
            if sandbox.run(Request("")).shell is None:
                return "it does not report its state"
            told = divergences(sandbox)
    except SandboxError as error:
        return error.message
    if told:
        first = f"{told[0].probe!r:.80}"
        return f"{len(told)} of {len(probes())} probes differ from a fresh bash, such as {first}"
    return None


def _keep(system: System, verdict: ServingVerdict) -> None:
    # If a verdict cannot be saved, this only costs time: the next opening probes again.
    document = {"mode": verdict.mode, "reason": verdict.reason, "library": _library()}
    with suppress(OSError):
        (system.path / _VERDICT).write_text(json.dumps(document, indent=1) + "\n")


def _library() -> str:
    """Return the SHA-256 (hex) of the library that is loaded into a system's bash."""
    return hashlib.sha256(native.preload_library().read_bytes()).hexdigest()
