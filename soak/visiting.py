"""Are many visitors at once served to the end, each with a machine of its own, and all logged?

    python soak/visiting.py [--sessions 200] [--minutes 60] [--every 5] [--kills 6]

So many clients of OpenSSH sit at terminals of one `shioenv serve ssh`, and type a line every few
seconds. Each has a sentinel of its own, and looks for those of others. Meanwhile clients and
machines are killed, so many a minute; whoever was killed comes again. At the end the server is
stopped. Then these have to hold: each answered line is in the log once, in its own session; each
session that began has ended; no line of the log is cut; nobody saw another's sentinel; no more
sessions broke than machines were killed; nothing of the server is left.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from faults import descendants

PATIENCE = 180.0
"""Seconds that anything may take: the clients are on the same processors."""

OPTIONS = [
    "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
    "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-o", "PubkeyAuthentication=no",
    "-o", "NumberOfPasswordPrompts=1", "-tt", "root@127.0.0.1",
]  # fmt: skip


class GoneError(Exception):
    """A client has ended."""


@dataclass
class Tally:
    """What all clients did and saw."""

    answered: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    """Somebody at a terminal."""

    def __init__(self, port: str, environment: dict[str, str]) -> None:
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.execvpe("ssh", ["ssh", "-p", port, *OPTIONS], environment)
        self.token = secrets.token_hex(8)

    def typed(self, line: bytes, until: bytes) -> bytes:
        """Types; what is shown up to a pattern. Errors: GoneError."""
        shown, deadline = b"", time.monotonic() + PATIENCE
        try:
            os.write(self._terminal, line)
            while not re.search(until, shown, re.DOTALL):
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([self._terminal], [], [], left)[0]:
                    raise GoneError(f"nothing for {PATIENCE:g} s after {shown[-200:]!r}")
                data = os.read(self._terminal, 65536)
                if not data:
                    raise GoneError("the end")
                shown += data
        except OSError:
            raise GoneError("the end") from None
        return shown

    def close(self) -> None:
        """Ends the client."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


class Visiting:
    """All clients, and whoever kills."""

    def __init__(self, port: str, environment: dict[str, str], every: float) -> None:
        self._port, self._environment, self._every = port, environment, every
        self._logins = threading.Semaphore(8)  # fewer than a stock sshd drops
        self.stop = threading.Event()
        self.tally = Tally()
        self.clients: dict[int, Client] = {}
        self.killed: set[str] = set()

    def sit(self, place: int) -> None:
        """Visits again and again, until the end."""
        while not self.stop.is_set():
            with self._logins:
                if self.stop.is_set():
                    return
                client = Client(self._port, self._environment)
                try:
                    client.typed(b"", rb"# $")
                except GoneError as gone:
                    self._ended(client, f"login: {gone}")
                    client.close()
                    continue
            self.clients[place] = client
            try:
                self._type(client)
                self._ended(client, "left")
            except GoneError as gone:
                self._ended(client, str(gone))
            finally:
                self.clients.pop(place, None)
                client.close()

    def _type(self, client: Client) -> None:
        own = client.token.encode()
        count = 0
        while not self.stop.wait(random.uniform(0.5, 1.5) * self._every):
            count += 1
            line = f"echo {client.token}-{count} >> /tmp/mine; cat /tmp/*; echo en''d-{count}"
            began = time.monotonic()
            shown = client.typed(f"{line}\r".encode(), b"end-%d\r\n.*# $" % count)
            found = set(re.findall(rb"\b[0-9a-f]{16}\b", shown))
            with self.tally.lock:
                self.tally.seconds.append(time.monotonic() - began)
                self.tally.answered.append(line)
                self.tally.strangers += [f"{client.token}: {each!r}" for each in found - {own}]

    def _ended(self, client: Client, how: str) -> None:
        with self.tally.lock:
            known = "killed" if client.token in self.killed else how
            self.tally.ends[known] += 1

    def kill_one(self, server: int) -> bool:
        """Kills a client, or the machine of somebody; whether it was a machine."""
        machines = [pid for pid in descendants(server) if name_of(pid) == "shioenv-sandbox"]
        if random.random() < 0.5 and machines:
            with suppress(ProcessLookupError):
                os.kill(random.choice(machines), signal.SIGKILL)
            return True
        if clients := list(self.clients.values()):
            client = random.choice(clients)
            self.killed.add(client.token)
            with suppress(ProcessLookupError):
                os.kill(client.pid, signal.SIGKILL)
        return False


def name_of(pid: int) -> str:
    """The name of a process; empty for one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def goes_on(pid: int) -> bool:
    """Whether a process does not end within a minute."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it is gone
        return False
    try:
        return not select.select([handle], [], [], 60.0)[0]
    finally:
        os.close(handle)


def faults(log: Path, tally: Tally, machines: int, left: list[int], status: int) -> list[str]:
    """What does not hold at the end."""
    found, begun, closed = [], [], []
    logged: Counter[str] = Counter()
    sessions: dict[str, set[str]] = {}
    for number, line in enumerate(log.read_bytes().splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError:
            found.append(f"line {number} of the log is cut: {line[:80]!r}")
            continue
        begun += [event["session"]] * (event["eventid"] == "cowrie.session.connect")
        closed += [event["session"]] * (event["eventid"] == "cowrie.session.closed")
        if event["eventid"] == "cowrie.command.input":
            logged[event["input"]] += 1
            token = event["input"].partition("echo ")[2][:16]
            sessions.setdefault(event["session"], set()).add(token)
    lost = [line for line in tally.answered if logged[line] != 1]
    found += [f"{logged[line]} times in the log: {line}" for line in lost]
    found += [f"session {one} has lines of several" for one, of in sessions.items() if len(of) > 1]
    if sorted(begun) != sorted(closed):
        found.append(f"{len(begun)} sessions began, {len(closed)} ended")
    found += [f"a stranger's sentinel at {each}" for each in tally.strangers]
    broken = sum(n for how, n in tally.ends.items() if how not in {"left", "killed"})
    if broken > machines:
        found.append(f"{broken} sessions broke, and {machines} machines were killed")
    found += [f"process {pid} is left: {name_of(pid)}" for pid in left]
    if status:
        found.append(f"the server ended with {status}")
    return found


def main() -> int:
    """Prints what was done and what does not hold; 1 where something does not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two lines")
    parser.add_argument("--kills", type=float, default=6.0, help="kills a minute")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        return soaked(Path(directory), options)


def soaked(directory: Path, options: argparse.Namespace) -> int:
    """The soak in a directory of its own."""
    most = str(options.sessions + 20)
    command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(directory / "visits")]
    bounds = ["--port", "0", "--connections", most, "--per-address", most]
    bounds += ["--seconds", "86400"]
    server = subprocess.Popen([*command, *bounds], stderr=subprocess.PIPE)
    assert server.stderr is not None
    said = server.stderr.readline()
    found = re.search(rb"running on ssh://[\d.]+:(\d+)", said)
    if found is None:
        raise SystemExit((said + server.stderr.read()).decode())
    ask = directory / "ask"
    ask.write_text("#!/bin/sh\necho any\n")
    ask.chmod(0o700)
    asking = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "TERM": "dumb"}
    visiting = Visiting(found[1].decode(), {**os.environ, **asking}, options.every)
    sitters = [
        threading.Thread(target=visiting.sit, args=(place,)) for place in range(options.sessions)
    ]
    for sitter in sitters:
        sitter.start()
    machines, most_at_once = 0, 0
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end and server.poll() is None:
        time.sleep(60 / options.kills if options.kills else 1.0)
        most_at_once = max(most_at_once, len(visiting.clients))
        if options.kills:
            machines += visiting.kill_one(server.pid)
    visiting.stop.set()
    for sitter in sitters:
        sitter.join()
    ours = descendants(server.pid)
    server.terminate()
    status = server.wait()
    left = [pid for pid in ours if goes_on(pid)]
    tally = visiting.tally
    wrong = faults(directory / "visits" / "log.jsonl", tally, machines, left, status)
    for fault in wrong[:20]:
        print(fault)
    seconds = sorted(tally.seconds) or [0.0]
    print(
        f"{len(tally.answered)} lines answered, {most_at_once} sessions at once at most, "
        f"{len(visiting.killed)} clients and {machines} machines killed; "
        f"a line took {1000 * seconds[len(seconds) // 2]:.0f} ms (p50), "
        f"{1000 * seconds[int(0.95 * len(seconds))]:.0f} ms (p95); ends: {dict(tally.ends)}; "
        f"load average {os.getloadavg()[0]:.0f}"
    )
    print(f"{len(wrong)} faults")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
