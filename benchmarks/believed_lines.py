"""Are commands over `shioenv serve ssh` answered as by the machine itself? And by Cowrie?

    python benchmarks/believed_lines.py FILE [--count N] [--cowrie] [--json]

FILE has an input on each line, as JSON (`input`) or as text. Each comes as a command of its own, by
OpenSSH's client, to a machine of its own, and starts in the system's first start directory. The
machine itself runs the same words as a login's three times, and what these runs disagree about is
left out. Compared are standard output, standard error and exit status as the client gives them. Of
Cowrie's answer, which has one output, output and exit status are compared with those of
`shioenv run`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from believed import served

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.runner import State
from shioenv.errors import AnswerError
from shioenv.evaluation.predictor import Setting
from shioenv.evaluation.predictors.cowrie import Cowrie
from shioenv.fronts.ssh.machines import LIMITS, accounts, login_words
from shioenv.system.store import find_system

RUNS = 3
OPTIONS = [
    "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
    "-o", "LogLevel=ERROR", "-o", "PubkeyAuthentication=no", "-T", "root@127.0.0.1",
]  # fmt: skip

Heard = tuple[bytes, bytes, int]
"""Standard output, standard error, exit status."""


def inputs(file: Path, count: int) -> Iterator[str]:
    """The first inputs of a file."""
    for line in file.read_text(encoding="utf-8").splitlines()[:count]:
        yield json.loads(line)["input"] if line.startswith("{") else line


def itself(runner: SandboxRunner, command: str) -> Heard | None:
    """What the machine itself does with a command of root's; None where its runs disagree."""
    root = next(iter(accounts(runner.system).values()))
    variables = {"SSH_CLIENT": "127.0.0.1 5 22", "SSH_CONNECTION": "127.0.0.1 5 127.0.0.1 22"}
    words = login_words(root, command, variables, tty=False)
    heard = set()
    for _ in range(RUNS):
        behavior = runner.execute(f"exec {words}", State(cwd="/"), separate=True)
        status = 255 if behavior.died_by_signal else behavior.exit_code
        heard.add((behavior.stdout or b"", behavior.stderr or b"", status))
    return heard.pop() if len(heard) == 1 else None


def asked(port: int, environment: dict[str, str], command: str) -> Heard:
    """What a client of the server gets."""
    words = ["ssh", "-p", str(port), *OPTIONS, command]
    done = subprocess.run(words, env=environment, input=b"", capture_output=True, timeout=300)
    return done.stdout, done.stderr, done.returncode


def cowries(texts: list[str], system: str, cwd: str) -> list[tuple[bytes, int]]:
    """What Cowrie answers to each."""
    told = []
    with closing(Cowrie(Setting("", system=system, start=cwd))) as honeypot:
        for text in texts:
            try:
                behavior = honeypot.run(text)
                told.append((behavior.output, behavior.exit_code))
            except AnswerError as error:
                told.append((str(error).encode(), -1))
    return told


def main() -> None:
    """Prints the inputs that are answered otherwise, and how many are not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--cowrie", action="store_true", help="ask Cowrie, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = list(inputs(options.file, options.count))
    system = find_system()
    cwd = system.declaration.start_directory
    commands = [f"cd {quoted(cwd)}; {text}" for text in texts]
    with open_sandbox(None, LIMITS) as runner:
        truth = [itself(runner, command) for command in commands]
    with tempfile.TemporaryDirectory() as directory, served(Path(directory)) as port:
        ask = Path(directory) / "ask"
        ask.write_text("#!/bin/sh\necho any\n")
        ask.chmod(0o700)
        environment = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        environment = {name: text for name, text in environment.items() if name[:3] != "LC_"}
        with ThreadPoolExecutor(3) as pool:
            heard = list(pool.map(lambda text: asked(port, environment, text), commands))
    steady = [place for place, one in enumerate(truth) if one is not None]
    wrong = [place for place in steady if heard[place] != truth[place]]
    found = {"inputs": len(texts), "steady": len(steady), "equal": len(steady) - len(wrong)}
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
    for place in wrong:
        print(f"{texts[place]}\n  itself: {truth[place]!r:.300}\n  served: {heard[place]!r:.300}")
    print(", ".join(f"{name}: {figure}" for name, figure in found.items()))


if __name__ == "__main__":
    main()
