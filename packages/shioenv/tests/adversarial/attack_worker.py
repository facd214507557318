"""Run hostile inputs and, after each, ordinary ones: a program, so that it can run as any user.

The first line of standard input is an object with the ordinary inputs, the names of the neighbour's
files and the variables to fill in; then one case each line. Answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.errors import ShioenvError
from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System, build_system
from support.waiting import let_time_pass


def _ordinary(sandbox: SandboxRunner, text: str, *, tty: bool = False) -> tuple[int, str]:
    behavior = sandbox.execute(text, tty=tty)
    return behavior.exit_code, behavior.output.decode("latin-1")


def _meanwhile(other: SandboxRunner, texts: list[str], run: Callable[[], Behavior]) -> Any:
    """Return `run`'s result, and each text's result in another sandbox before and during it."""
    before = [_ordinary(other, text) for text in texts]
    with ThreadPoolExecutor() as pool:
        running = pool.submit(run)
        let_time_pass(0.6, "the input needs it to get where it wants")
        during = [_ordinary(other, text) for text in texts]
        return running.result(), list(zip(texts, before, during, strict=True))


def _attack(sandbox: SandboxRunner, case: dict[str, Any], system: System) -> dict[str, Any]:
    def run() -> Behavior:
        # the shell gets the case's own text, without the `cd DIR;` that a runner writes
        cwd = case["cwd"] or system.declaration.start_directory
        return sandbox._executed(
            Request(case["text"], cwd=cwd, tty=case["tty"], wall_seconds=case["wall"])
        )

    def ask() -> list[tuple[int, str]]:
        found = [_ordinary(sandbox, probe) for probe in case["after"]]
        return found + [_ordinary(sandbox, probe, tty=True) for probe in case["after-tty"]]

    probes = case["after"] + case["after-tty"]
    before = ask()
    start = time.monotonic()
    rows: list[Any] = []
    try:
        if case["meanwhile"]:
            with open_sandbox(system, sandbox.limits) as other:
                behavior, rows = _meanwhile(other, case["meanwhile"], run)
        else:
            behavior = run()
    except ShioenvError as error:
        return {"error": f"{type(error).__name__}: {error}", "probes": []}
    flags = ("timed_out", "output_truncated", "patch_truncated")
    answer = {
        "exit_code": behavior.exit_code,
        "output": behavior.output.decode("latin-1"),
        "flags": [name for name in flags if getattr(behavior, name)],
        "reached": behavior.limits_hit,
        "patch": str(behavior.patch.operations) + str(behavior.content_digests),
        "seconds": round(time.monotonic() - start, 3),
    }
    if not behavior.shell_state_known:
        answer["flags"].append("shell_unknown")
    answer["probes"] = [*rows, *zip(probes, before, ask(), strict=True)]
    return answer


class _Worker:
    def __init__(self, system: System, setup: dict[str, Any]) -> None:
        self.system = system
        self.sentinels: list[str] = setup["sentinels"]
        self.baselines: dict[str, list[tuple[int, str]]] = {}
        self.shared: SandboxRunner | None = None
        neighbour = open_sandbox(system)
        inner = neighbour._sandbox
        assert isinstance(inner, NamespaceSandbox)
        threading.Thread(target=self._neighbour, args=(inner, setup["neighbour"])).start()
        self.close_neighbour = inner._process

    @staticmethod
    def _neighbour(sandbox: NamespaceSandbox, text: str) -> None:
        """Run another user's input, which lasts as long as this program. A runner would repeat it
        in a new sandbox when its own is killed."""
        with contextlib.suppress(ShioenvError, OSError):
            sandbox.run(Request(text, wall_seconds=3600.0))

    def baseline(self, limits: dict[str, Any]) -> list[tuple[int, str]]:
        """Return the results of the ordinary inputs in a sandbox that ran nothing else."""
        key = json.dumps(limits, sort_keys=True)
        if key not in self.baselines:
            with open_sandbox(self.system, Limits(**limits)) as fresh:
                self.baselines[key] = [_ordinary(fresh, text) for text in self.sentinels]
        return self.baselines[key]

    def answer(self, case: dict[str, Any]) -> dict[str, Any]:
        share, shares = case["share"]
        known = self.baseline(case["limits"])[share::shares]
        ordinary = self.sentinels[share::shares]
        if case["own"]:
            sandbox = open_sandbox(self.system, Limits(**case["limits"]))
        else:
            sandbox = self.shared = self.shared or open_sandbox(
                self.system, Limits(**case["limits"])
            )
        try:
            answer = _attack(sandbox, case, self.system)
            found = [_ordinary(sandbox, text) for text in ordinary]
            sandbox.run("true")  # what its supervisor holds depends on the newest run
        finally:
            if case["own"]:
                sandbox.close()
        answer["sentinels"] = [
            row for row in zip(ordinary, known, found, strict=True) if row[1] != row[2]
        ]
        return answer


def main() -> None:
    """Answer until standard input ends."""
    system = build_system()
    worker = _Worker(system, json.loads(sys.stdin.readline()))
    print(json.dumps({"ready": worker.close_neighbour.pid}), flush=True)  # type: ignore[union-attr]
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)
    if worker.shared:
        worker.shared.close()
    worker.close_neighbour.kill()  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
