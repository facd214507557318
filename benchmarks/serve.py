"""Measure a line's cost over OpenAI's protocol, alone and with Cowrie in front of it.

    python benchmarks/serve.py [--turns N] [--json]

One table; its lines are measured in turns, so that other load affects all alike. The base of
Cowrie's lines is Cowrie in front of an endpoint that answers at once with a constant; the rest is
this project's cost. Needs shioenv[openai], and makes Cowrie's own environment on first use.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from typing import Any

from shioenv_eval.predictors import cowrie

RUNNERS = {
    "machine": (),
    "model above a machine": ("--model", "default", "--machine-below", "0.9"),
    "model": ("--model", "default"),
}
"""The runners, with their options."""

LINES = (
    "uname -a", "id", "pwd", "cd /tmp", "ls -la", "x=5", "echo $x", "cat /etc/passwd", "w",
    "ps aux", "touch f", "ls -la", "df -h", "cat /proc/cpuinfo | grep name | wc -l", "cd /var/log",
    "ls", "echo a > f; cat f", "grep -c root /etc/passwd", "mkdir -p a/b", "rm -r a",
)  # fmt: skip
VISIT = Path(__file__).with_name("cowrie_visit.py")


def called(runner: str) -> str:
    """Return the runner's model name in the protocol."""
    return "default" if "--model" in RUNNERS.get(runner, ()) else "sandbox"


class Constant(BaseHTTPRequestHandler):
    """An endpoint that answers every request at once, with the same text."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    body = json.dumps({"choices": [{"message": {"role": "assistant", "content": "x\n"}}]}).encode()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def constant() -> Iterator[int]:
    """Run an endpoint that answers at once; yield its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Constant) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def served(runner: str) -> Iterator[int]:
    """Run `shioenv serve openai`; yield its port."""
    words = [sys.executable, "-m", "shioenv", "serve", "openai", *RUNNERS[runner], "--port", "0"]
    words += ["--rate", "1000000"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = None
        for line in process.stderr:
            if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
                port = int(found[1])
                break
        if port is None:
            sys.exit(f"the server of {runner} ended before it was listening")
        try:
            yield port
        finally:
            process.terminate()


@contextmanager
def honeypot(home: Path, port: int, model: str) -> Iterator[subprocess.Popen[str]]:
    """Start Cowrie in front of an endpoint, and a visitor that types the given lines."""
    predictors = str(files("shioenv_eval.predictors"))
    words = [str(cowrie.interpreter()), str(VISIT), predictors, str(home), str(cowrie.free_port())]
    words += [f"http://127.0.0.1:{port}", "none", model]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        yield process
        process.stdin.close()


def over_cowrie(process: subprocess.Popen[str]) -> list[float]:
    """Return the seconds of each line in a Cowrie terminal."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps({"lines": LINES}), file=process.stdin, flush=True)
    return [seconds for _, seconds in json.loads(process.stdout.readline())]


def straight(port: int, model: str) -> list[float]:
    """Return the seconds of each line over HTTP, in one conversation."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    messages: list[dict[str, str]] = []
    spent = []
    for line in LINES:
        messages.append({"role": "user", "content": line})
        body = json.dumps({"model": model, "messages": messages})
        began = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", body)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        spent.append(time.perf_counter() - began)
        content = said["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": content})
    connection.close()
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10, help="visits of 20 lines, of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    spent: dict[str, list[float]] = {}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = {"a constant": stack.enter_context(constant())}
        ports |= {runner: stack.enter_context(served(runner)) for runner in RUNNERS}
        honeypots = {
            name: stack.enter_context(honeypot(home / str(port), port, called(name)))
            for name, port in ports.items()
        }
        for turn in range(options.turns + 1):
            for name, process in honeypots.items():
                visits = {f"Cowrie, {name}": over_cowrie(process)}
                if name in RUNNERS:
                    visits[f"HTTP, {name}"] = straight(ports[name], called(name))
                for kind, seconds in visits.items():
                    spent.setdefault(kind, []).extend(seconds if turn else [])
    rows = []
    base = statistics.median(spent["Cowrie, a constant"])
    for kind, seconds in sorted(spent.items()):
        *_, ninety_fifth = statistics.quantiles(seconds, n=20)
        p50 = statistics.median(seconds)
        row = {"line": kind, "p50_ms": p50 * 1e3, "p95_ms": ninety_fifth * 1e3, "n": len(seconds)}
        if kind.startswith("Cowrie"):
            row["beyond_ms"] = (p50 - base) * 1e3
        rows.append(row)
    host = {
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    if options.json:
        print(json.dumps({"host": host, "rows": rows}))
        return
    print(", ".join(f"{name} {value}" for name, value in host.items()))
    print("| a line over | p50 ms | p95 ms | p50 beyond Cowrie's own |\n|---|---|---|---|")
    for row in rows:
        beyond = f"{row['beyond_ms']:.1f}" if "beyond_ms" in row else ""
        print(f"| {row['line']} | {row['p50_ms']:.1f} | {row['p95_ms']:.1f} | {beyond} |")


if __name__ == "__main__":
    main()
