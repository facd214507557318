"""`shioenv serve e2b` as tests start it, and the options by which the SDK finds it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

KEYS = ("e2b_first", "e2b_second")
COMMAND = (sys.executable, "-m", "shioenv.cli.main", "serve", "e2b")


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server on a free port; yield it and its address."""
    words = [*COMMAND, "--port", "0", *options]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            found = next(
                (found for line in server.stderr if (found := re.search(r"http://\S+", line))), None
            )
            assert found, "the server ended before it listened"
            yield server, found[0]
        finally:
            server.terminate()


def reached(url: str, key: str = KEYS[0]) -> dict[str, str]:
    """Return the options of the SDK's methods that reach a server with a key."""
    return {"api_url": url, "sandbox_url": url, "api_key": key}
