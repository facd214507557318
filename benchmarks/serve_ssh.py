"""What a visit to `shioenv serve ssh` costs: logins, prompts, lines, memory.

    python benchmarks/serve_ssh.py [--visits N] [--lines N] [--sitting N] [--json]

The client is OpenSSH's own, on the same processors. The figures hold for one client at a time, but
for the logins, which are made four at once. A stock sshd of the same package is visited in turns
with ours. Processor time is that of the server and all that it started, without the client's.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from believed import CLIENT, stock

from shioenv.system.store import find_system

OPTIONS = [*CLIENT, "root@127.0.0.1"]
PROMPT = rb"\$ $|# $"
PATIENCE = 60.0


class Served:
    """A server in a process, and its clients."""

    def __init__(self, directory: Path) -> None:
        key = directory / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        self.key = key.with_suffix(".pub").read_text().strip()
        command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(directory), "--port", "0"]
        options = ["--per-address", "1000", "--connections", "400", "--keys", f"{key}.pub"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        found = re.search(rb"running on ssh://[\d.]+:(\d+)", self.process.stderr.readline())
        assert found
        self._port = int(found[1])
        self._options = ["-i", str(key), *OPTIONS]

    def run(self, command: str) -> None:
        """Logs in, and runs a command."""
        subprocess.run(
            ["ssh", "-p", str(self._port), *self._options, command], check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    @contextmanager
    def sitting(self, port: int | None = None) -> Iterator[Callable[[bytes], None]]:
        """A terminal at its prompt; a function that types a line and waits for the next prompt.

        `port` is that of another server.
        """
        pid, terminal = pty.fork()
        if not pid:
            os.execvp("ssh", ["ssh", "-p", str(port or self._port), *self._options])

        def typed(line: bytes) -> None:
            os.write(terminal, line)
            shown = b""
            while not re.search(PROMPT, shown):
                if not select.select([terminal], [], [], PATIENCE)[0]:
                    raise SystemExit(f"no prompt: {shown!r}")
                shown += os.read(terminal, 65536)

        try:
            typed(b"")
            yield typed
        finally:
            os.close(terminal)
            os.waitpid(pid, 0)

    def processor(self) -> float:
        """Seconds of the processor that the server and all that it started have used."""
        pids = [self.process.pid, *descendants(self.process.pid)]
        return sum(map(processor, pids))

    def memory(self) -> int:
        """Bytes of the server and all that it started, each shared page counted once."""
        return sum(map(proportional, [self.process.pid, *descendants(self.process.pid)]))


def descendants(pid: int) -> list[int]:
    """Numbers of all processes that a process, or one of them, started."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def processor(pid: int) -> float:
    """Seconds of the processor of a process and of those it has waited for; 0 for one gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def proportional(pid: int) -> int:
    """Bytes of a process, each page divided by how many have it; 0 for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def took(action: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)


def prompted(server: Served, port: int | None = None) -> float:
    """Milliseconds of a login up to its first prompt."""
    began = time.perf_counter()
    with server.sitting(port):
        return 1000 * (time.perf_counter() - began)


def measured(server: Served, visits: int, lines: int, sitting: int) -> dict[str, float]:
    """The figures by name."""
    found: dict[str, float] = {}
    server.run("true")
    with stock(find_system(), server.key) as port:
        both = [(prompted(server), prompted(server, port)) for _ in range(visits)]
    ours, theirs = (statistics.median(each) for each in zip(*both, strict=True))
    found["login to prompt, ms, median"] = ours
    found["the same of a stock sshd"] = theirs
    found["login to prompt beyond stock's, ms"] = ours - theirs
    commands = [took(lambda: server.run("true")) for _ in range(visits)]
    found["login and a command, ms, median"] = statistics.median(commands)
    with server.sitting() as typed:
        listings = sorted(took(lambda: typed(b"ls -la /\r")) for _ in range(lines))
    found["ls -la in a session, ms, p50"] = statistics.median(listings)
    found["ls -la in a session, ms, p95"] = listings[int(0.95 * len(listings))]
    used = server.processor()
    with ThreadPoolExecutor(4) as pool:
        whole = took(lambda: list(pool.map(lambda _: server.run("true"), range(2 * visits))))
    found["logins with a command a second, four at once"] = 2000 * visits / whole
    each = (server.processor() - used) / (2 * visits)
    found["processor time of a login with a command, ms"] = 1000 * each
    found["logins with a command a second that one core has time for"] = 1 / each
    before = server.memory()
    held = [server.sitting() for _ in range(sitting)]
    for one in held:
        one.__enter__()
    found["memory of an idle session, MiB"] = (server.memory() - before) / sitting / 2**20
    for one in held:
        one.__exit__(None, None, None)
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--visits", type=int, default=20)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--sitting", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = Served(Path(directory))
        try:
            found = measured(server, options.visits, options.lines, options.sitting)
        finally:
            server.process.terminate()
            server.process.wait()
    if options.json:
        print(json.dumps(found))
        return
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name, figure in found.items():
        print(f"{figure:10.1f}  {name}")


if __name__ == "__main__":
    main()
