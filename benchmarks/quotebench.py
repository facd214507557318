"""Run the tasks of QuoteBench on a system, in place of its Docker image.

    python benchmarks/quotebench.py DIR [--system NAME] [--contract raw|json|wrapped] [--json]

DIR is a clone of https://github.com/LeonardNJU/quoteBench (Apache-2.0), which is no part of this
repository. Its own fixtures and checks are used: each fixture is copied to a pristine machine, the
command runs there, and the files are copied back to be checked. All known-correct commands must
pass, and no naive command may pass a hostile task. Exit status 1 if that does not hold.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import io
import json
import shlex
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shioenv

WORK = "/work"
"""The directory of a task, as in the image."""

SECONDS = 15.0
"""The time of a command, as in QuoteBench."""

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": WORK, "LC_ALL": "C",
    "LANG": "C", "TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip

EXCHANGE = """mkdir {work} && cd {work} || exit 99
base64 -d <<< {files} | tar -xzp --warning=no-timestamp || exit 99
env -i {environment} /bin/bash -c {command} > /tmp/out 2> /tmp/err < /dev/null
echo "$? $(base64 -w0 /tmp/out) $(base64 -w0 /tmp/err) $(tar -cz . | base64 -w0)"
"""


def packed(directory: Path) -> str:
    """Return the files of a directory as a tarball in base64."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(directory, ".")
    return base64.b64encode(out.getvalue()).decode()


def run_on(machine: shioenv.SandboxRunner, command: str, cwd: Path) -> tuple[int, str, str, bool]:
    """Run a command on the files of a directory, and write the changed files back.

    Returns exit status, standard output, standard error, and whether the time ran out.
    """
    environment = shlex.join(f"{name}={value}" for name, value in ENVIRONMENT.items())
    row = EXCHANGE.format(
        work=WORK, files=packed(cwd), environment=environment, command=shlex.quote(command)
    )
    behavior = machine.run(row)
    if behavior.timed_out:
        return -1, "", "", True
    parts = behavior.text.removesuffix("\n").split(" ")
    if len(parts) != 4 or behavior.limits_hit:
        raise SystemExit(f"the machine failed: {behavior.limits_hit} {behavior.text:.200}")
    status, output, errors, files = parts
    for entry in cwd.rglob("*"):
        if not entry.is_dir() or entry.is_symlink():
            entry.unlink()
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(files))) as archive:
        archive.extractall(cwd, filter="tar")
    shown = [base64.b64decode(part).decode("utf-8", "replace") for part in (output, errors)]
    return int(status), shown[0], shown[1], False


def executor(machine: shioenv.SandboxRunner, result: Callable[..., Any]) -> Callable[..., Any]:
    """Return an executor for QuoteBench, which makes its results with `result`."""

    def execute(command: str, cwd: Path, timeout: int = 0) -> Any:
        began = time.monotonic()
        status, output, errors, late = run_on(machine, command, cwd)
        spent = time.monotonic() - began
        return result(status, output, errors, timed_out=late, duration=spent)

    return execute


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--system", default="debian-12-dev")
    parser.add_argument("--contract", choices=("raw", "json", "wrapped"), default="raw")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sys.path.insert(0, str(given.directory))
    cli, core, harness = (
        importlib.import_module(f"quotebench.{name}") for name in ("cli", "core", "harness")
    )
    tasks = cli._select()
    solved: list[str] = []
    failed: list[str] = []
    passed: list[str] = []
    tried = 0
    limits = shioenv.Limits(wall_seconds=SECONDS, output_bytes=1 << 20)
    began = time.monotonic()
    with shioenv.open_sandbox(given.system, limits=limits) as machine:
        harness.EXECUTORS["shioenv"] = executor(machine, core.ExecResult)
        for task in tasks:
            command, violation = cli._apply_contract(
                given.contract, cli._oracle_reply(task, given.contract)
            )
            attempt = harness.run_attempt(task, command, executor="shioenv")
            (solved if attempt.passed and violation is None else failed).append(task.task_id)
            if task.naive and task.tier > 0:
                tried += 1
                command, violation = cli._apply_contract(given.contract, task.naive)
                if violation is None:
                    attempt = harness.run_attempt(task, command, executor="shioenv")
                    passed += [task.task_id] if attempt.passed else []
    row = {
        "system": given.system, "contract": given.contract, "tasks": len(tasks),
        "oracle": len(solved), "naive_hostile": tried, "naive_passed": passed, "failed": failed,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    text = f"oracle {len(solved)}/{len(tasks)}, refused {tried - len(passed)}/{tried}"
    print(json.dumps(row) if given.json else f"{given.system}, {given.contract}: {text}")
    for name in () if given.json else (*failed, *passed):
        print(f"  {name}")
    return 1 if failed or passed or not tasks else 0


if __name__ == "__main__":
    sys.exit(main())
