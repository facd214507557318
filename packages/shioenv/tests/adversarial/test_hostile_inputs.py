"""Inputs that try to escape, to persist, or to deceive: `cases/*.txt`, as root and as another user.

Each must have the result that its case states. Then ordinary inputs must have their usual results,
and the host must be unchanged. A case that fails today is marked as an expected failure, with the
reason. Once it is repaired it passes, and the mark is removed.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shioenv.behavior.observe import open_sandbox
from shioenv.errors import ShioenvError
from shioenv.files.durable import cache_directory
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from support.case_files import Case, all_cases, faults, load, sentinels, summary, unescape
from support.host_state import Canaries, descendants, host_state
from support.nightly import LARGER, NIGHTLY, scaled
from support.paths import ROOT
from support.waiting import let_time_pass, wait_until

HERE = Path(__file__).parent
ORDINARY_USER, ORDINARY_RANGE = 64243, 1_900_000_000
MODES = ("root", "user") if os.geteuid() == 0 else ("user",)


def runs_by_day(case: Case, number: int) -> bool:
    """Whether a case runs by day: a half of them as root, and a sixth, of the others, as a user.

    Of the floods, which take longest, half as many run.
    """
    every = 4 if case.group == "floods" else 2
    if len(MODES) == 2 and case.mode == "user":
        return number % (3 * every) == 1
    return number % every == 0


def _marked(case: Case, number: int) -> Any:
    marks: list[Any] = [pytest.mark.xdist_group(f"adversarial-{case.mode}")]
    if not runs_by_day(case, number):
        marks.append(NIGHTLY)
    if reason := case.values.get("xfail"):
        marks.append(pytest.mark.xfail(strict=True, reason=reason))
    return pytest.param(case, id=f"{case.group}::{case.name}[{case.mode}]", marks=marks)


@LARGER
@pytest.mark.parametrize(
    "case",
    [_marked(case, number) for mode in MODES for number, case in enumerate(all_cases(mode))],
)
def test_hostile_input(case: Case, attackers: Attackers) -> None:
    attacker = attackers.of(case.mode)
    before = attacker.host()
    answer = attacker.answer(case)
    after = attacker.host()
    assert not faults(case, answer), f"{faults(case, answer)}\n{summary(answer)}"
    assert not answer["sentinels"], f"do something else now:\n{_differences(answer)}"
    assert before == after, [name for name in before if before[name] != after[name]]
    assert attackers.canaries.secret not in answer.get("output", "")
    attacker.settle()


def _differences(answer: dict[str, Any]) -> str:
    """Return the ordinary inputs with other results, each with its differing lines."""
    found = []
    for text, (code, output), (new_code, new) in answer["sentinels"]:
        lines = difflib.ndiff(output.splitlines(), new.splitlines())
        changed = [line for line in lines if line[:1] in "+-"]
        found.append("\n".join([f"{text}: {code}, now {new_code}", *changed[:20]]))
    return "\n".join(found)


# ---- the rest ----


@pytest.mark.parametrize(
    ("cwd", "text"),
    [("/etc\0/x", "pwd"), ("/" + "x" * 5000, "pwd"), ("/etc", "\ud800"), ("/etc/passwd", "pwd")],
)
def test_what_cannot_run_is_refused(cwd: str, text: str, system: System) -> None:
    with open_sandbox(system) as opened:
        inner = opened._sandbox
        assert isinstance(inner, NamespaceSandbox)
        supervisor = inner._process
        with pytest.raises(ShioenvError):
            inner.run(Request(text, cwd=cwd))
        assert inner._process is supervisor, "it was no reason to open the sandbox again"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("true\n=> exit 0\n=> output\n", "neither an input nor an expectation"),
        ("### a\n=> exit 0\n=> output\n", "no input"),
        ("### a\ntrue\n", "exactly one of exit and refused"),
        ("### a\ntrue\n=> exit 0\n", "says nothing but that it ended"),
        ("### a\ntrue\n=> exit 0\n=> flags hungry\n", "there is no 'hungry' among the flags"),
        ("### a\ntrue\n=> exit 0\n=> print x\n", "there is no expectation 'print'"),
        ("### a\ntrue\n=> exit 0\n=> prints x*\n", "matches nothing at all"),
        ("### a\ntrue\n=> exit 0\n=> exit 1\n=> output\n", "stands twice"),
        ("### a\ntrue\n=> exit no\n=> output\n", "an exit code is a number"),
        ("### a\ntrue\n=> exit 0\n=> output\n" * 2, "several cases are called"),
        ("", "no case"),
    ],
)
def test_a_malformed_case_is_an_error(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "class.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        load(path, "root")


# ---- who attacks ----


class Attacker:
    """A worker process (`attack_worker.py`) of one user, started when first needed."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        canaries: Canaries,
    ) -> None:
        self._command, self._canaries = command, canaries
        self._environment = environment | {"PYTHONPATH": str(ROOT / "tests")}
        self._process: subprocess.Popen[str] | None = None
        self.at_first: dict[str, int] = {}
        self._asked = 0

    def start(self) -> None:
        """Start the worker unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        setup = {
            "sentinels": [sentinel.text for sentinel in sentinels()],
            "neighbour": _neighbour(self._canaries.secret),
        }
        self._ask(setup, seconds=200.0)
        self._ask(_request(_FIRST, {}), seconds=60.0)
        self.at_first = self._lasting()

    def answer(self, case: Case) -> dict[str, Any]:
        """Return the worker's result for a case. A worker that does not answer is killed; the case
        failed."""
        assert self._process is not None
        words = self._canaries.words() | {"WORKER": str(self._process.pid)}
        self._asked += 1
        # By day a quarter of the ordinary inputs in turn: most cases share a sandbox, where the
        # traces of one are found after a later one.
        shares = scaled(4, 1)
        share = (self._asked % shares, shares)
        return self._ask(_request(case, words, share), seconds=60.0)

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.close()
            pytest.fail("the worker hangs" if not ready else "the worker died")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def host(self) -> dict[str, Any]:
        """Return the host's state that an input must not change."""
        assert self._process is not None
        return host_state(self._canaries, self._process.pid)

    def settle(self) -> None:
        """Wait until the initial number of processes and descriptors is below the worker."""
        wait_until(
            lambda: self._below() == self.at_first,
            lambda: f"the end of what stayed: {self._below()}, at first {self.at_first}",
            seconds=10,
        )

    def _lasting(self) -> dict[str, int]:
        """Return the smallest of many counts.

        The neighbour's supervisor has some more descriptors open while it observes its run.
        """
        looks = []
        for _ in range(200):
            looks.append(self._below())
            let_time_pass(0.01, "no event reports that a supervisor has finished its look")
        return min(looks, key=lambda look: sum(look.values()))

    def _below(self) -> dict[str, int]:
        """Count the processes below the worker, by name.

        Included are the descriptors that its supervisors hold (visible to root only). All processes
        of a sandbox are below the worker: the supervisor adopts orphans.
        """
        assert self._process is not None
        found: dict[str, int] = {}
        for process, name in descendants(self._process.pid).items():
            found[name] = found.get(name, 0) + 1
            if name == "shioenv-sandbox" and os.geteuid() == 0:
                for descriptor in Path(f"/proc/{process}/fd").iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        key = re.sub(r"\d+", "N", str(descriptor.readlink()))
                        found[key] = found.get(key, 0) + 1
        return found

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _neighbour(secret: str) -> str:
    return (HERE / "neighbour.sh").read_text().replace("@SECRET@", secret)


_FIRST = Case("", "", "", "true")


def _request(case: Case, words: dict[str, str], share: tuple[int, int] = (0, 1)) -> dict[str, Any]:
    """Send a request. With `share` (i, n) only the i-th of each n ordinary inputs runs."""
    text = case.text
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return {
        "text": text,
        "after": case.lists.get("after", []),
        "after-tty": case.lists.get("after-tty", []),
        "meanwhile": case.lists.get("meanwhile", []),
        "cwd": unescape(case.values["cwd"]) if "cwd" in case.values else None,
        "wall": float(case.values["wall"]) if "wall" in case.values else None,
        "limits": case.limits,
        "tty": "tty" in case.values,
        "share": share,
        "own": "own" in case.values or "limits" in case.values,
    }


class Attackers:
    """One attacker for each mode, with the parts of the host that they must not reach."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.canaries = Canaries(
            directory / "canary", directory.name.rpartition("-")[2] + "-secret"
        )
        self._attackers: dict[str, Attacker] = {}

    def of(self, mode: str) -> Attacker:
        if mode not in self._attackers:
            command, environment = [sys.executable, str(HERE / "attack_worker.py")], {**os.environ}
            if mode == "root":
                # a separate mount namespace, so that the input is not blamed for mounts of other
                # processes; mounts propagate to copies of the namespace, as on most hosts
                command = ["unshare", "--mount", "--propagation", "shared", *command]
            elif os.geteuid() == 0:
                command, environment = self._as_ordinary_user(command)
            self._attackers[mode] = Attacker(command, environment, self.canaries)
        self._attackers[mode].start()
        return self._attackers[mode]

    def _as_ordinary_user(self, command: list[str]) -> tuple[list[str], dict[str, str]]:
        """Run with separate account files, and a cache into which the system is built from the same
        base. The user may read this interpreter and checkout, wherever they are, besides what any
        user may read."""
        cache = self.directory / "cache"
        (cache / "bases").mkdir(parents=True)
        for base in (cache_directory() / "bases").glob("*.tar"):
            shutil.copy(base, cache / "bases")
        for path in (cache, cache / "bases", *(cache / "bases").iterdir()):
            os.chown(path, ORDINARY_USER, ORDINARY_USER)
        account = f"other:x:{ORDINARY_USER}:{ORDINARY_USER}::/:/bin/sh\n"
        (self.directory / "passwd").write_text(Path("/etc/passwd").read_text() + account)
        (self.directory / "ranges").write_text(f"other:{ORDINARY_RANGE}:65536\n")
        script = (
            'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/ranges" /etc/subuid && '
            'mount --bind "$0/ranges" /etc/subgid && exec setpriv --clear-groups '
            f"--reuid {ORDINARY_USER} --regid {ORDINARY_USER} "
            '--inh-caps=-all,+dac_read_search --ambient-caps=+dac_read_search "$@"'
        )
        for name in ("subuid", "subgid"):
            Path("/etc", name).touch()
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
        environment = {**os.environ, "SHIOENV_CACHE": str(cache), "HOME": str(self.directory)}
        return [*unshare, str(self.directory), *command], environment

    def close(self) -> None:
        for attacker in self._attackers.values():
            attacker.close()
        self.canaries.close()
        if os.geteuid() == 0:
            shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="module")
def attackers(system: System) -> Iterator[Attackers]:
    directory = Path(tempfile.mkdtemp(prefix="shioenv-adversarial-", dir="/var/tmp"))
    directory.chmod(0o755)
    (directory / "canary").mkdir()
    found = Attackers(directory)
    try:
        yield found
    finally:
        found.close()
