"""Count the lines for which intruders go on as on a real server.

    python benchmarks/believed_scripts.py [--script NAME ...] [--json]

`intruders.toml` has twenty intruders, rewritten from public documentation: the lines that each
types, and the output needed to go on. They are typed to a stock sshd of the system's package over
the system's files, to `shioenv serve ssh` (a machine, the default model, and the model where it is
sure), and to Cowrie: with its defaults, and with the system's files, processes and texts. The first
line with other output ends the visit. A condition that fails on the stock server is a fault of the
script, and named.

All runs as root in a new network namespace, in which the intruder's server has an address and
serves scripts. Visitors of `shioenv serve ssh` have no network; those of the others reach that
server.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from believed import Client, cowrie, served, stock
from shioenv.domain.predictor import Setting
from shioenv.system.store import System, find_system
from shioenv_eval.predictors.cowrie import Cowrie

SCRIPTS = Path(__file__).with_name("intruders.toml")
ADDRESS = "192.88.99.7"
"""The intruder's server. Its range is no longer assigned (RFC 7526), and is not private: Cowrie
refuses to call private ones."""

PAYLOAD = b"#!/bin/sh\necho launched\n"
INSIDE = "SHIOENV_BELIEVED_INSIDE"
"""Set once this program runs in a new network namespace."""

PATIENCE = 30.0
"""Time limit of a line in seconds."""
QUIET = 0.15
"""Seconds of silence that confirm a prompt."""
ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\^_])")
PROMPT = re.compile(rb"[#$] ?\Z")

Opener = Callable[[], AbstractContextManager[int]]


@dataclass(frozen=True)
class Intruder:
    """An intruder's lines, and the condition on the output before each next line."""

    name: str
    source: str
    way: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Visit:
    """The progress of an intruder."""

    lines: int
    """Lines after which the intruder went on."""
    stopped: str = ""
    """The line after which the intruder did not; empty where there was none."""
    shown: str = ""
    """The output of that line."""


class LeftError(Exception):
    """The server has ended the session, or no longer replies."""


def intruders() -> tuple[Intruder, ...]:
    """Return all intruders of the file, in its order."""
    scripts = tomllib.loads(SCRIPTS.read_text(encoding="utf-8"))["script"]
    return tuple(
        Intruder(each["name"], each["source"], each["way"], tuple(map(tuple, each["lines"])))
        for each in scripts
    )


Typing = Callable[[str], str]
"""Types a line, and returns its output. Errors: LeftError."""


@contextmanager
def terminal(client: Client, port: int) -> Iterator[Typing]:
    """Open a terminal and wait for its prompt. Errors: LeftError."""
    pid, master = pty.fork()
    if not pid:
        os.execvpe("ssh", client.words(port, "-tt"), client.environment)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("4H", 50, 1000, 0, 0))

    def typed(line: str) -> str:
        os.write(master, line.encode() + b"\r")
        _, _, shown = prompted(master, b"\n").partition("\n")
        return shown.rpartition("\n")[0] + "\n" if "\n" in shown else ""

    try:
        prompted(master, b"")
        yield typed
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)


@contextmanager
def commands(client: Client, port: int) -> Iterator[Typing]:
    """Open one connection, in which each line is a command on a separate channel."""
    control = ["-S", str(client.key.with_suffix(".control"))]
    begun = client.words(port, *control, "-M", "-N", "-f")
    subprocess.run(begun, env=client.environment, check=True, timeout=PATIENCE)

    def typed(line: str) -> str:
        words = [*client.words(port, *control), line]
        try:
            done = subprocess.run(
                words, env=client.environment, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=PATIENCE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise LeftError("nothing any more") from None
        return text_of(done.stdout + done.stderr)

    try:
        yield typed
    finally:
        ending = client.words(port, *control, "-O", "exit")
        subprocess.run(ending, env=client.environment, capture_output=True, check=False)


def prompted(master: int, first: bytes) -> str:
    """Return the screen's text up to the next prompt after `first`. Errors: LeftError."""
    shown, deadline = b"", time.monotonic() + PATIENCE
    while True:
        is_there = first in shown and PROMPT.search(ESCAPE.sub(b"", shown)) is not None
        left = QUIET if is_there else deadline - time.monotonic()
        if left <= 0 or not select.select([master], [], [], left)[0]:
            if is_there:
                return text_of(shown)
            raise LeftError(text_of(shown))
        try:
            shown += os.read(master, 65536)
        except OSError:
            raise LeftError(text_of(shown)) from None


def text_of(shown: bytes) -> str:
    """Return the readable text."""
    return ESCAPE.sub(b"", shown).replace(b"\r", b"").decode("utf-8", "backslashreplace")


def visited(client: Client, intruder: Intruder, port: int) -> Visit:
    """Run the intruder against the server on a port."""
    at = terminal if intruder.way == "terminal" else commands
    done = 0
    try:
        with at(client, port) as typed:
            for line, condition in intruder.lines:
                shown = typed(line)
                if not re.search(condition, shown, re.MULTILINE):
                    return Visit(done, line, shown)
                done += 1
    except (LeftError, subprocess.SubprocessError) as error:
        return Visit(done, intruder.lines[done][0], f"(no prompt) {error}")
    return Visit(done)


class Payloads(BaseHTTPRequestHandler):
    """Serves the payload for every path."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(PAYLOAD)))
        self.end_headers()
        self.wfile.write(PAYLOAD)

    def log_message(self, *_: Any) -> None:
        """Discard the message."""


def openers(system: System, client: Client, stack: ExitStack, home: Path) -> dict[str, Opener]:
    """Return a way to open each server for a visit. All but the stock one serve all visits."""
    model = ["--model", "default"]
    kept = {
        "machine": stack.enter_context(served(home / "machine")),
        "model": stack.enter_context(served(home / "model", *model)),
        "hybrid": stack.enter_context(served(home / "hybrid", *model, "--machine-below", "0.9")),
        "Cowrie": stack.enter_context(cowrie()),
    }
    configured = stack.enter_context(closing(Cowrie(Setting("", system=system.name, start="/"))))
    kept["Cowrie, configured"] = configured.port

    @contextmanager
    def at(port: int) -> Iterator[int]:
        yield port

    found: dict[str, Opener] = {"stock": lambda: stock(system, client.public)}
    return found | {name: lambda port=port: at(port) for name, port in kept.items()}


def main() -> int:
    """Print each intruder's progress on each server; 1 where a condition is at fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--script", action="append", help="an intruder; may be given again")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        script = f'ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec "$@"'
        words = ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, *sys.argv]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    chosen = [each for each in intruders() if not options.script or each.name in options.script]
    found: dict[str, dict[str, Visit]] = {}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(ThreadingHTTPServer((ADDRESS, 80), Payloads))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = Client(home)
        servers = openers(find_system(), client, stack, home)
        for intruder in chosen:
            told = found[intruder.name] = {}
            for name, opener in servers.items():
                with opener() as port:
                    told[name] = visited(client, intruder, port)
            print(f"{intruder.name}: {len(intruder.lines)} lines", file=sys.stderr)
            for name, visit in told.items():
                if visit.stopped:
                    shown = " ".join(visit.shown.split())[:150]
                    print(f"  {name}: {visit.stopped!r} shows {shown!r}", file=sys.stderr)
        server.shutdown()
    printed(chosen, found, options.json)
    return int(any(each["stock"].stopped for each in found.values()))


def printed(chosen: list[Intruder], found: dict[str, dict[str, Visit]], as_json: bool) -> None:
    """Print each intruder's progress, as a table or as JSON."""
    lengths = {each.name: len(each.lines) for each in chosen}
    counts = {name: {at: one.lines for at, one in each.items()} for name, each in found.items()}
    if as_json:
        print(json.dumps({"lines": lengths, "went on": counts}))
        return
    servers = list(next(iter(counts.values())))
    print(" | ".join(["| intruder", "lines", *servers]) + " |")
    rows = [(name, lengths[name], [each[at] for at in servers]) for name, each in counts.items()]
    summed = [sum(column) for column in zip(*(each for _, _, each in rows), strict=True)]
    ended = [sum(each[at] == lengths[name] for name, each in counts.items()) for at in servers]
    rows.append(("all lines", sum(lengths.values()), summed))
    rows.append(("intruders at their end", len(chosen), ended))
    for name, most, row in rows:
        print(" | ".join([f"| {name}", str(most), *map(str, row)]) + " |")


if __name__ == "__main__":
    sys.exit(main())
