"""Check that many concurrent visitors are served to the end, isolated and logged.

    python soak/visiting.py [--sessions 200] [--minutes 60] [--every 5] [--kills 6]

`--sessions` OpenSSH clients have terminals of one `shioenv serve ssh`, and type a line every few
seconds. Each has its own sentinel, and looks for those of other clients. Meanwhile clients are
killed, sshds, visitors' shells, and each kind of process that a machine has: `--kills` a minute. A
killed client connects again. In the end all clients leave, and the server is stopped. Then these
must hold:

- Each answered line is in the log once, in its own session. Its effect is reported once; that of
  a session's last line may be missing. No line of the log is cut.
- Each session that began has ended. No more sessions broke than processes were killed.
- No client saw another's sentinel.
- Once all clients have left, no sshd, login shell or visitor's shell remains. Once the server has
  stopped, none of its processes remains.
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

from faults import children, descendants

PATIENCE = 180.0
"""Time limit of any step in seconds: the clients share the processors."""

OPTIONS = [
    "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
    "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-o", "PubkeyAuthentication=no",
    "-o", "NumberOfPasswordPrompts=1", "-tt", "root@127.0.0.1",
]  # fmt: skip


class GoneError(Exception):
    """A client has ended."""


@dataclass
class Tally:
    """The actions and observations of all clients."""

    answered: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Client:
    """A client at a terminal."""

    def __init__(self, port: str, environment: dict[str, str]) -> None:
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.execvpe("ssh", ["ssh", "-p", port, *OPTIONS], environment)
        self.token = secrets.token_hex(8)

    def typed(self, line: bytes, until: bytes) -> bytes:
        """Type, and return the output up to a pattern. Errors: GoneError."""
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
        """End the client."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


class Visiting:
    """All clients, and the threads that kill."""

    def __init__(self, port: str, environment: dict[str, str], every: float) -> None:
        self._port, self._environment, self._every = port, environment, every
        self._logins = threading.Semaphore(8)  # fewer than a stock sshd drops
        self.stop = threading.Event()
        self.tally = Tally()
        self.clients: dict[int, Client] = {}
        self.killed: set[str] = set()

    def sit(self, place: int) -> None:
        """Visit again and again, until the end."""
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

    def kill_one(self, server: int) -> str:
        """Kill a client, or a process that serves one; return its kind, empty for none."""
        found: dict[str, list[int]] = {}
        clients = {client.pid: client.token for client in list(self.clients.values())}
        if clients:
            found["client"] = [*clients]
        for pid in descendants(server):
            if kind := kind_of(pid):
                found.setdefault(kind, []).append(pid)
        if not found:
            return ""
        kind = random.choice(sorted(found))
        pid = random.choice(found[kind])
        if kind == "client":
            self.killed.add(clients[pid])
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return ""
        return kind


def kind_of(pid: int) -> str:
    """Return the kind of a server's process that serves one visitor; else empty."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    name, number = name_of(pid), re.search(r"^NSpid:.*\t(\d+)$", status, re.MULTILINE)
    inside = number is not None and number[1]
    if words[0] in {b"sshd: root [priv]", b"sshd: root@pts/0"}:
        return "sshd"
    if words[0] == b"-session":
        return "login shell"
    if words[0] == b"-bash" and inside != "1":
        return "shell"
    if name == "shioenv-sandbox" and has_machine(pid):
        return "supervisor"
    if name == "init" and inside == "1":
        return "process 1"
    if name == "gateway":
        return "gateway"
    if name == "bash" and words[:2] == [b"bash", b"--norc"]:
        return "fork server"
    return ""


def has_machine(supervisor: int) -> bool:
    """Whether a process supervises a machine: its child is process 1 of one."""
    return any(name_of(child) == "init" for child in children(supervisor))


def visitors_of(server: int) -> list[int]:
    """Return the processes of a server that serve visitors."""
    own = {"sshd", "login shell", "shell"}
    return [pid for pid in descendants(server) if kind_of(pid) in own]


def name_of(pid: int) -> str:
    """Return the name of a process; empty for one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def goes_on(pid: int) -> bool:
    """Whether a process still runs after a minute."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it is gone
        return False
    try:
        return not select.select([handle], [], [], 60.0)[0]
    finally:
        os.close(handle)


def faults(log: Path, tally: Tally, killed: int, left: list[int], status: int) -> list[str]:
    """Return the violated conditions at the end."""
    found, begun, closed = [], [], []
    logged: Counter[str] = Counter()
    told: Counter[str] = Counter()
    sessions: dict[str, list[str]] = {}
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
            sessions.setdefault(event["session"], []).append(event["input"])
        if event["eventid"] == "shioenv.command":
            told.update(event["input"].splitlines())
    answered = set(tally.answered)
    found += [f"not in the log: {line}" for line in answered if not logged[line]]
    found += [f"{count} times in the log: {line}" for line, count in logged.items() if count > 1]
    found += [f"told {count} times: {line}" for line, count in told.items() if count > 1]
    for session, lines in sessions.items():
        if len({line.partition("echo ")[2][:16] for line in lines}) > 1:
            found.append(f"session {session} has lines of several")
        whole = [line for line in lines if line in answered]
        found += [f"not told: {line}" for line in whole[:-1] if not told[line]]
    if sorted(begun) != sorted(closed):
        found.append(f"{len(begun)} sessions began, {len(closed)} ended")
    found += [f"a stranger's sentinel at {each}" for each in tally.strangers]
    broken = sum(n for how, n in tally.ends.items() if how not in {"left", "killed"})
    if broken > killed:
        found.append(f"{broken} sessions broke, and {killed} processes were killed")
    found += [f"process {pid} is left: {name_of(pid)}" for pid in left]
    if status:
        found.append(f"the server ended with {status}")
    return found


def main() -> int:
    """Print actions and violated conditions; 1 for any violation."""
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
    """Run the soak in a separate directory."""
    most = str(options.sessions + 20)
    command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(directory / "visits")]
    bounds = ["--port", "0", "--connections", most, "--per-address", most]
    bounds += ["--max-duration", "86400"]
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
    kills: Counter[str] = Counter()
    most_at_once, said_at = 0, time.monotonic()
    end = said_at + 60 * options.minutes
    while time.monotonic() < end and server.poll() is None:
        time.sleep(60 / options.kills if options.kills else 1.0)
        most_at_once = max(most_at_once, len(visiting.clients))
        if options.kills:
            kills[visiting.kill_one(server.pid)] += 1
        if time.monotonic() - said_at >= 60:
            said_at = time.monotonic()
            print(progress(visiting, server.pid, end - said_at), file=sys.stderr, flush=True)
    visiting.stop.set()
    for sitter in sitters:
        sitter.join()
    del kills[""]
    until = time.monotonic() + PATIENCE
    while (stayed := visitors_of(server.pid)) and time.monotonic() < until:
        time.sleep(1.0)
    ours = descendants(server.pid)
    server.terminate()
    status = server.wait()
    left = [pid for pid in ours if goes_on(pid)]
    tally = visiting.tally
    killed = sum(kills.values()) - kills["client"]
    wrong = faults(directory / "visits" / "log.jsonl", tally, killed, left, status)
    wrong += [f"process {pid} went on once all visitors had left" for pid in stayed]
    for fault in wrong[:20]:
        print(fault)
    seconds = sorted(tally.seconds) or [0.0]
    print(
        f"{len(tally.answered)} lines answered, {most_at_once} sessions at once at most, "
        f"killed: {dict(kills)}; "
        f"a line took {1000 * seconds[len(seconds) // 2]:.0f} ms (p50), "
        f"{1000 * seconds[int(0.95 * len(seconds))]:.0f} ms (p95); ends: {dict(tally.ends)}; "
        f"load average {os.getloadavg()[0]:.0f}"
    )
    print(f"{len(wrong)} faults")
    return int(bool(wrong))


def progress(visiting: Visiting, server: int, left: float) -> str:
    """Return a line about the progress."""
    tally = visiting.tally
    status = Path(f"/proc/{server}/status").read_text()
    memory = re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)
    files = sum(1 for _ in Path(f"/proc/{server}/fd").iterdir())
    return (
        f"{left / 60:.0f} minutes left: {len(visiting.clients)} sessions, "
        f"{len(tally.answered)} lines, ends {dict(tally.ends)}, the server has "
        f"{int(memory[1]) / 1024 if memory else 0:.0f} MiB and {files} files open"
    )


if __name__ == "__main__":
    sys.exit(main())
