"""Compare microVMs with namespaces: the contract, hostile inputs, and the same bytes.

    python soak/microvm.py
    python soak/microvm.py --only equality --count 300 --json

Five parts; `--only` chooses one. **contract**: every check of
`tests/support/sandbox_conformance.py`, with longer walls. **hostile**: the attacks of `attacks.txt`
and self-contained cases of `tests/support`.
After each, an ordinary input must print its usual output, on an unchanged host. **bare**: the
attacks again, as root of the machine itself. **kills**: a dataset made while every third machine is
killed, compared record by record with an undisturbed one. **equality**: inputs that the project's
own synthesis wrote, in namespaces, in a microVM, and as root of a bare one, compared as
`machine.py` does. A violation is a check that fails, an ordinary input that prints something else,
and a difference without a known cause in the machine: a person has to explain each.

Where the processor is simulated (`shioenv doctor`) an input takes half a second, restored.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from common import Progress, drawn, parser, report
from faults import Generation, descendants, differing
from machine import Answer, Answers, Verdict, judge
from shioenv.behavior.observe import open_sandbox
from shioenv.errors import ShioenvError
from shioenv.sandbox.backends import default_sandbox
from shioenv.sandbox.base import Limits, Request
from shioenv.system.store import System, find_system
from shioenv_backends.microvm.boot import build_microvm
from shioenv_backends.microvm.qemu import PROGRAM
from support import sandbox_conformance

SECONDS = ("wall_seconds", "cpu_seconds", "background_seconds", "scan_seconds")
CASES = Path(__file__).parents[1] / "tests" / "support" / "cases"
ORDINARY = Request(
    "echo $((6 * 7)); ls -lA --time-style=+ / /var/tmp /tmp; cat /etc/hostname; "
    "ps -e -o pid=,args=; mount",
    wall_seconds=120.0,
)

STARTED = time.time() - time.monotonic()
"""This host's boot time, on its clock."""

Violations = list[dict[str, Any]]


def slower(limits: Limits, factor: float, revert: int) -> Limits:
    """Return the limits for a microVM."""
    longer = {name: getattr(limits, name) * factor for name in SECONDS}
    return replace(limits, sandbox="microvm", revert=revert, **longer)


def contract(system: System, given: Any) -> tuple[Mapping[str, int], Violations]:
    """Run every check of the contract."""
    limits = slower(sandbox_conformance.LIMITS, given.slower, 0)
    with default_sandbox(system, limits) as sandbox:
        results = list(sandbox_conformance.run_checks(sandbox))
    failed = [{"check": one.name, "why": one.failure} for one in results if one.failure]
    return {"checks": len(results), "checks failed": len(failed)}, failed


def attacks() -> list[tuple[str, str]]:
    """Yield names and texts of root's attacks on a machine."""
    text = (Path(__file__).parent / "attacks.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    return [(f"attacks/{name}", body) for name, _, body in (one.partition("\n") for one in blocks)]


def cases() -> list[tuple[str, str]]:
    """Yield names and texts of the tests' self-contained hostile inputs."""
    found = []
    for path in sorted(CASES.glob("[a-z]*.txt")):
        for block in re.split(r"^### ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            name, _, rest = block.partition("\n")
            text, mark, said = rest.partition("\n=> ")
            if mark and "limits" not in said and "%" not in text:
                found.append((f"{path.stem}/{name.strip()}", text.strip("\n")))
    return found


def hostile(system: System, given: Any) -> tuple[Mapping[str, int], Violations]:
    """Run hostile inputs one after the other, each followed by an ordinary one. The machine is
    restored only after one broke it. All attacks run, and as many of the tests' inputs as remain.
    """
    more = cases()
    wanted = max(0, given.hostile - len(attacks()))
    chosen = attacks()[: given.hostile] + more[:: max(1, len(more) // max(1, wanted))][:wanted]
    limits = replace(slower(Limits(), given.slower, 0), wall_seconds=10.0, cpu_seconds=60.0)
    return _attacked("hostile inputs", system, limits, chosen)


def bare(system: System, given: Any) -> tuple[Mapping[str, int], Violations]:
    """Run all attacks as root of a bare machine, and after each an ordinary input in the next."""
    limits = replace(slower(Limits(), given.slower, 1), sandbox="microvm-bare")
    limits = replace(limits, wall_seconds=10.0, cpu_seconds=60.0)
    return _attacked("attacks on a bare machine", system, limits, attacks()[: given.hostile])


def _attacked(
    what: str, system: System, limits: Limits, chosen: list[tuple[str, str]]
) -> tuple[Mapping[str, int], Violations]:
    violations: Violations = []
    progress, broken = Progress(what, len(chosen)), list[str]()
    host = _host()
    with default_sandbox(system, limits) as sandbox:
        always = _settled(sandbox.run(ORDINARY).output)
        for name, attack in chosen:
            try:
                sandbox.run(Request(attack))
            except ShioenvError as error:
                broken.append(name)  # the machine is restored; never a record
                print(f"{name} broke it: {error.message}", file=sys.stderr, flush=True)
            after = _settled(sandbox.run(ORDINARY).output)
            if after != always:
                violations.append({"case": name, "printed": after, "always": always})
            if _host() != host:
                violations.append({"case": name, "host": _host(), "before": host})
            progress.step()
    return {what: len(chosen), f"{what}: that broke a sandbox": len(broken)}, violations


def _settled(output: bytes) -> bytes:
    """Remove `ps` itself and the kernel's threads, which come and go in a bare machine."""
    lines = output.splitlines(keepends=True)
    return b"".join(line for line in lines if not re.match(rb" *\d+ (\[.*\]|ps -e .*)$", line))


def _host() -> tuple[Any, ...]:
    """Return the settings of this host that no guest may change."""
    names = ("hostname", "domainname", "core_pattern", "threads-max", "pid_max")
    settings = [Path("/proc/sys/kernel", name).read_text() for name in names]
    away = abs(time.time() - time.monotonic() - STARTED) > 5.0
    return (*settings, away, Path("/proc/sys/kernel/random/boot_id").read_text())


def kills(system: System, given: Any) -> tuple[Mapping[str, int], Violations]:
    """Make a dataset of `--records` inputs while QEMU is killed, never twice in a row: an input
    that breaks several machines counts as one that cannot be run.
    """
    counts: Counter[str] = Counter()
    options = ["--without-scores", "--no-cache", "--workers", "1", "--system", system.name]
    options += ["--sandbox", "microvm", "--timeout", "200"]
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        whole, other = (
            Generation(Path(directory, name), given, given.records, *options)
            for name in ("whole", "killed")
        )
        began = time.monotonic()
        if (done := whole.run()).returncode != 0:
            raise SystemExit(f"the undisturbed run failed: {done.stderr}")
        in_peace = time.monotonic() - began
        process = other.start()
        machines: list[int] = []
        spared = 0  # machines since the last that was killed
        while process.poll() is None:
            time.sleep(0.02)
            for pid in descendants(process.pid):
                if pid in machines or not _is_restored(pid):
                    continue
                machines.append(pid)
                spared += 1
                if spared >= 3:  # a machine that ended first leaves it to the next
                    time.sleep(random.Random(f"{given.seed} {pid}").uniform(0.0, 0.5))
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        counts["killed"] += 1
                        spared = 0
        said, errors = process.communicate()
        if process.returncode != 0:
            return counts, [{"what": "failed", "errors": errors[-800:]}]
        took = time.monotonic() - began - in_peace
        wrong = differing(whole.directory, other.directory, counts)
    if not counts["killed"]:
        wrong.append({"what": "no machine was killed", "said": said})
    return {
        "machines killed": counts["killed"],
        "records compared beside kills": counts["records"],
        "of them volatile": counts["volatile records"],
        "seconds in peace": round(in_peace),
        "seconds while machines are killed": round(took),
    }, wrong


def _is_restored(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return command[0].endswith(PROGRAM.encode()) and b"-incoming" in command


def equality(system: System, given: Any) -> tuple[Mapping[str, int], Violations]:
    """Run the same inputs in namespaces, in a microVM, and as root of a bare one."""
    limits = Limits(wall_seconds=10.0)
    done: Counter[str] = Counter()
    violations: Violations = []
    progress, answers = Progress("compared", given.count), Answers(system)
    with (
        open_sandbox(system, limits) as here,
        open_sandbox(system, slower(limits, given.slower, given.revert)) as there,
        open_sandbox(system, slower(limits, given.slower, 1), sandbox="microvm-bare") as bare,
    ):
        for one in drawn(system=system, seed=given.seed, count=given.count):
            mine = [answers.run(here, one.text, one.cwd)]
            for name, runner in (("microvm", there), ("bare", bare)):
                theirs = [answers.run(runner, one.text, one.cwd)]
                if mine[0] != theirs[0]:
                    if len(mine) == 1:
                        mine.append(answers.run(here, one.text, one.cwd))
                    theirs.append(answers.run(runner, one.text, one.cwd))
                verdict, causes = judge(one.text, mine, theirs)
                if one.volatile and verdict is not Verdict.IDENTICAL:
                    verdict = Verdict.VOLATILE
                done[f"{name}: {verdict.value}"] += 1
                if verdict in (Verdict.EXPLAINED, Verdict.OURS):
                    done.update(f"{name}: because of {cause}" for cause in causes)
                if verdict is Verdict.OURS:
                    violations.append(_difference(one.text, name, causes, mine[0], theirs[0]))
            progress.step()
    return dict(sorted(done.items())), violations


def _difference(
    text: str, name: str, causes: list[str], mine: Answer, theirs: Answer
) -> dict[str, Any]:
    lines = zip_longest(mine.output.splitlines(), theirs.output.splitlines(), fillvalue=b"")
    names = sorted(mine.files.keys() | theirs.files.keys())
    return {
        "input": text,
        "sandbox": name,
        "causes": causes,
        "exit": (mine.exit_code, theirs.exit_code),
        "lines": [pair for pair in lines if pair[0] != pair[1]][:3],
        "files": {
            each: (mine.files.get(each, "unchanged"), theirs.files.get(each, "unchanged"))
            for each in names
            if mine.files.get(each, 0) != theirs.files.get(each, 0)
        },
    }


PARTS: dict[str, Callable[[System, Any], tuple[Mapping[str, int], Violations]]] = {
    "contract": contract,
    "hostile": hostile,
    "bare": bare,
    "kills": kills,
    "equality": equality,
}


def main() -> int:
    """Run the selected parts."""
    options = parser(__doc__, count=300)
    options.add_argument("--only", choices=PARTS, action="append", help="a part (default: all)")
    options.add_argument("--hostile", type=int, default=150, help="hostile inputs (default: 150)")
    options.add_argument("--records", type=int, default=30, help="beside kills (default: 30)")
    options.add_argument("--slower", type=float, default=20.0, help="walls (default: 20 times)")
    options.add_argument("--revert", type=int, default=1, help="as Limits.revert (default: 1)")
    given = options.parse_args()
    system = find_system(given.system)
    build_microvm(system)
    began = time.time()
    facts: dict[str, Any] = {"system": system.digest}
    violations: Violations = []
    for name in given.only or PARTS:
        found, wrong = PARTS[name](system, given)
        facts |= found
        violations += [{"part": name, **one} for one in wrong]
    facts["seconds"] = round(time.time() - began)
    return report(facts, violations, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
