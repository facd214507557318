"""Compare answers of `shioenv serve ssh`, and of Cowrie, with the machine itself.

    python benchmarks/believed_lines.py FILE [--count N] [--cowrie] [--json]

FILE has an input on each line, as JSON (`input`) or as text. OpenSSH's client sends each as a
separate command to a new machine. It starts in the system's first start directory.

The machine itself runs the same words as a login's, as `shioenv run` does, three times. Then it
runs them once more as a server would: a second later, beside other processes, with a socket as
standard input, and for a client at another port. Differences between these runs depend on the time
and manner of the call: two logins on one server differ there too. They are left out, and named.
Standard output, standard error and exit status are compared, as the client gives them. Of Cowrie's
answer, which has one output, output and exit status are compared with those of `shioenv run`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from difflib import unified_diff
from pathlib import Path

from believed import CLIENT, served
from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.predictor import Setting
from shioenv.domain.runner import State
from shioenv.errors import AnswerError
from shioenv.system.store import System, find_system
from shioenv_agents.tasks.entered_machine import Command, EnteredMachine, Finished, Running
from shioenv_eval.predictors.cowrie import Cowrie
from shioenv_serve.ssh.machines import LIMITS, login_accounts, login_words

RUNS = 3
LATER = 1.1
"""Seconds: more than one on any clock."""
OPTIONS = [*CLIENT, "-o", "PubkeyAuthentication=no", "-T", "root@127.0.0.1"]

Heard = tuple[bytes, bytes, int]
"""Standard output, standard error, exit status."""


def inputs(file: Path, count: int) -> Iterator[str]:
    """Return the first inputs of a file."""
    for line in file.read_text(encoding="utf-8").splitlines()[:count]:
        yield json.loads(line)["input"] if line.startswith("{") else line


def words_of(system: System, command: str, port: int) -> str:
    """Return the quoted words of root's login with a command, for a client at a port."""
    root = next(iter(login_accounts(system).values()))
    variables = {
        "SSH_CLIENT": f"127.0.0.1 {port} 22",
        "SSH_CONNECTION": f"127.0.0.1 {port} 127.0.0.1 22",
    }
    return login_words(root, command, variables, tty=False)


def itself(runner: SandboxRunner, command: str) -> set[Heard]:
    """Return the machine's own results for a command of root's, in all of its runs."""
    words = words_of(runner.system, command, 5)
    heard = set()
    for _ in range(RUNS):
        behavior = runner.execute(f"exec {words}", State(cwd="/"), separate=True)
        status = 255 if behavior.died_by_signal else behavior.exit_code
        heard.add((behavior.stdout or b"", behavior.stderr or b"", status))
    return heard


def later(system: System, command: str) -> Heard:
    """Return the result of a command that enters a machine with some uptime."""
    with EnteredMachine(system, LIMITS) as machine:

        def done(text: str) -> Finished:
            running = Running(machine.start(Command(text=text, fed=True)))
            return asyncio.run(running.finish())

        done("true")
        time.sleep(LATER)
        finished = done(f"exec {words_of(system, command, 6)}")
    status = 255 if finished.exit_code == 128 + signal.SIGKILL else finished.exit_code
    return finished.output, finished.errors, status


def asked(port: int, environment: dict[str, str], command: str) -> Heard:
    """Return the results that a client of the server gets."""
    words = ["ssh", "-p", str(port), *OPTIONS, command]
    done = subprocess.run(words, env=environment, input=b"", capture_output=True, timeout=300)
    return done.stdout, done.stderr, done.returncode


def cowries(texts: list[str], system: str, cwd: str) -> list[tuple[bytes, int]]:
    """Return Cowrie's answer to each."""
    told = []
    with closing(Cowrie(Setting("", system=system, start=cwd))) as honeypot:
        for text in texts:
            try:
                behavior = honeypot.run(text)
                told.append((behavior.output, behavior.exit_code))
            except (AnswerError, EOFError, TimeoutError) as error:
                told.append((str(error).encode(), -1))
    return told


def main() -> None:
    """Print the inputs with different answers, and the number of the others."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--cowrie", action="store_true", help="also query Cowrie")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = list(inputs(options.file, options.count))
    system = find_system()
    cwd = system.declaration.start_directory
    commands = [f"cd {quoted(cwd)}; {text}" for text in texts]
    with open_sandbox(None, LIMITS) as runner:
        runs = [itself(runner, command) for command in commands]
    with ThreadPoolExecutor(4) as pool:
        afterwards = list(pool.map(lambda command: later(system, command), commands))
    with tempfile.TemporaryDirectory() as directory, served(Path(directory)) as port:
        ask = Path(directory) / "ask"
        ask.write_text("#!/bin/sh\necho any\n")
        ask.chmod(0o700)
        environment = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        environment = {name: text for name, text in environment.items() if name[:3] != "LC_"}
        with ThreadPoolExecutor(3) as pool:
            heard = list(pool.map(lambda text: asked(port, environment, text), commands))
    again = [place for place, each in enumerate(runs) if len(each) == 1]
    steady = [place for place in again if runs[place] == {afterwards[place]}]
    wrong = [place for place in steady if runs[place] != {heard[place]}]
    found = {
        "inputs": len(texts), "equal in three runs": len(again), "steady": len(steady),
        "equal": len(steady) - len(wrong),
    }  # fmt: skip
    if options.cowrie:
        with open_sandbox() as runner:
            ran = [runner.run(texts[place]) for place in steady]
        theirs = cowries([texts[place] for place in steady], system.name, cwd)
        found["cowrie, equal"] = sum(
            (one.output, one.exit_code) == other for one, other in zip(ran, theirs, strict=True)
        )
    if options.json:
        print(json.dumps(found))
        return
    for place in sorted(set(again) - set(steady)):
        print(f"skipped: {texts[place]}")
    for place in wrong:
        print(texts[place])
        for ours, theirs in zip(heard[place], *runs[place], strict=True):
            if ours != theirs:
                before, after = (repr(text).split("\\n") for text in (theirs, ours))
                print("\n".join(unified_diff(before, after, "itself", "served", lineterm="", n=0)))
    print(", ".join(f"{name}: {figure}" for name, figure in found.items()))


if __name__ == "__main__":
    main()
