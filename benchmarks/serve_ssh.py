"""Measure the cost of a visit to `shioenv serve ssh`: logins, prompts, lines, memory.

    python benchmarks/serve_ssh.py [--visits N] [--lines N] [--sitting N] [--json]

Four servers are visited in turns: ours with a machine and with the default model, a stock sshd of
the same package over the same files, and Cowrie with its defaults. The client is OpenSSH's own. Its
time is part of all times except processor time, which is that of the server and all its
descendants.

The logins a second are those of a server that has one processor alone; clients have the others.
Eight log in at once, fewer than a stock sshd drops.
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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from believed import Client, cowrie, stock
from shioenv.system.store import find_system

PROMPT = rb"\$ $|# $"
PATIENCE = 60.0
AT_ONCE = 8
"""Concurrent logins."""


class Served:
    """A server in a process, until the end of a `with` statement."""

    def __init__(self, directory: Path, *options: str, processor: int | None = None) -> None:
        """`processor` is the only one that the server may use."""
        command = [sys.executable, "-m", "shioenv", "serve", "ssh", str(directory), "--port", "0"]
        bounds = ["--per-address", "1000", "--connections", "400"]
        pinned = [] if processor is None else ["taskset", "-c", str(processor)]
        self._process = subprocess.Popen(
            [*pinned, *command, *bounds, *options], stderr=subprocess.PIPE
        )
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        found = re.search(rb"running on ssh://[\d.]+:(\d+)", said)
        if found is None:
            raise SystemExit((said + self._process.stderr.read()).decode())
        self.port = int(found[1])

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def processor(self) -> float:
        """Return the processor seconds of the server and its descendants."""
        pids = [self._process.pid, *descendants(self._process.pid)]
        return sum(map(processor, pids))

    def memory(self) -> int:
        """Return the bytes of the server and its descendants, each shared page counted once."""
        return sum(map(proportional, [self._process.pid, *descendants(self._process.pid)]))


def run(client: Client, port: int, command: str) -> None:
    """Log in, and run a command."""
    subprocess.run(
        [*client.words(port), command], check=True, env=client.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def sitting(client: Client, port: int) -> Iterator[Callable[[bytes], None]]:
    """Open a terminal; yield a function that types a line and waits for the next prompt."""
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe("ssh", client.words(port), client.environment)

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


def descendants(pid: int) -> list[int]:
    """Return the PIDs of all descendants of a process."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def processor(pid: int) -> float:
    """Return the processor seconds of a process and of its awaited children; 0 for one gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def proportional(pid: int) -> int:
    """Return a process's bytes, each page divided by its number of users; 0 for one that is
    gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def took(action: Callable[[], object]) -> float:
    """Return milliseconds."""
    began = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - began)


def prompted(client: Client, port: int) -> float:
    """Return the milliseconds of a login up to its first prompt."""
    began = time.perf_counter()
    with sitting(client, port):
        return 1000 * (time.perf_counter() - began)


def compared(
    client: Client, ports: dict[str, int], visits: int, lines: int
) -> dict[str, dict[str, float]]:
    """Return the figures of all servers, by their names; visits are made in turns."""
    prompts: dict[str, list[float]] = {name: [] for name in ports}
    commands: dict[str, list[float]] = {name: [] for name in ports}
    found: dict[str, dict[str, float]] = {}
    for port in ports.values():
        run(client, port, "true")
    for _ in range(visits):
        for name, port in ports.items():
            prompts[name].append(prompted(client, port))
            commands[name].append(took(lambda port=port: run(client, port, "true")))  # type: ignore[misc]
    with ExitStack() as stack:
        sitters = {name: stack.enter_context(sitting(client, at)) for name, at in ports.items()}
        listings: dict[str, list[float]] = {name: [] for name in ports}
        for _ in range(lines):
            for name, typed in sitters.items():
                listings[name].append(took(lambda typed=typed: typed(b"ls -la /\r")))  # type: ignore[misc]
    for name in ports:
        ordered = sorted(listings[name])
        found[name] = {
            "login to prompt": statistics.median(prompts[name]),
            "login with a command": statistics.median(commands[name]),
            "ls -la, p50": statistics.median(ordered),
            "ls -la, p95": ordered[int(0.95 * len(ordered))],
        }
    return found


def alone(client: Client, directory: Path, visits: int) -> dict[str, float]:
    """Return the logins a second of a server that has one processor alone."""
    usable = os.sched_getaffinity(0)
    first, *others = sorted(usable)
    found = {}
    with Served(directory, "--authorized-keys", f"{client.key}.pub", processor=first) as server:
        os.sched_setaffinity(0, others or usable)
        try:
            run(client, server.port, "true")
            used, began = server.processor(), time.perf_counter()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda _: run(client, server.port, "true"), range(visits)))
            seconds = time.perf_counter() - began
        finally:
            os.sched_setaffinity(0, usable)
        found["logins with a command a second, by the clock"] = visits / seconds
        each = (server.processor() - used) / visits
        found["processor time of a login with a command, ms"] = 1000 * each
    return found


def held(client: Client, server: Served, count: int) -> float:
    """Return the MiB of an idle session."""
    before = server.memory()
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(sitting(client, server.port))
        return (server.memory() - before) / count / 2**20


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--visits", type=int, default=20)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--sitting", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began_with = os.getloadavg()[0]
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        client = Client(home)
        keys = ["--authorized-keys", f"{client.key}.pub"]
        found = alone(client, home / "alone", 5 * options.visits)
        server = stack.enter_context(Served(home / "machine", *keys))
        model = stack.enter_context(Served(home / "model", *keys, "--model", "default"))
        ports = {
            "machine": server.port,
            "model": model.port,
            "stock": stack.enter_context(stock(find_system(), client.public)),
            "Cowrie": stack.enter_context(cowrie()),
        }
        servers = compared(client, ports, options.visits, options.lines)
        found["memory of an idle session, MiB"] = held(client, server, options.sitting)
    if options.json:
        print(json.dumps({"load": began_with, "ms": servers, **found}))
        return
    print(f"load average {began_with:.1f} before, on {os.cpu_count()} processors")
    print(" | ".join(["| ms", *ports]) + " |")
    for name in servers["machine"]:
        print(" | ".join([f"| {name}", *(f"{each[name]:.1f}" for each in servers.values())]) + " |")
    for name, figure in found.items():
        print(f"{figure:10.1f}  {name}")


if __name__ == "__main__":
    main()
