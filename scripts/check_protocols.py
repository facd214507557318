"""Compare protocol numbers with the code that they cover.

    python scripts/check_protocols.py [--write]

`tests/unit/protocols.json` holds each number with a digest of the code that it covers. Where the
code changed and the number did not, the exit status is 1. `--write` writes the digests of numbers
that were raised, and refuses for the others. Comments, docstrings, imports, blank lines, and the
names and places of files may change without a new number.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import shioenv.protocols
from shioenv_agents.tasks import certificate

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "unit" / "protocols.json"

NUMBERS: dict[str, int] = {
    name: number
    for module in (shioenv.protocols, certificate)
    for name, number in vars(module).items()
    if name.isupper()
}
"""The number of each protocol, by its name."""

_RUN = ("bash", "behavior", "native", "sandbox", "system")
_MACHINES = ("shioenv_backends/microvm", "shioenv_backends/native")
_TASK = ("shioenv/domain", "shioenv_agents/tasks/task.py")

COVERED: dict[str, tuple[str, ...]] = {
    "EXECUTION": (
        *(f"shioenv/{each}" for each in (*_RUN, "domain", "guests.py")),
        *_MACHINES,
    ),
    "CHANNEL": (
        *(f"shioenv/{each}" for each in (*_RUN, "live")),
        *_MACHINES,
        *(f"shioenv_agents/tasks/{name}.py" for name in ("entered_machine", "terminal")),
    ),
    "JUDGE": (
        *_TASK,
        *(f"shioenv_agents/tasks/{name}.py" for name in ("goal_check", "episode", "unrecorded")),
    ),
    "HARBOR_JUDGE": (*_TASK, "shioenv_agents/tasks/harbor"),
}
"""The coverage of each number: files, and directories with all their files, below
`packages/*/src`."""

COMPILED = "/native/bin/"
"""The directory of the compiled programs."""

_C_COMMENT = re.compile(r'("(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')|//[^\n]*|/\*.*?\*/', re.DOTALL)


def digest(paths: Iterable[Path]) -> str:
    """SHA-256 (hex) of the code in files, and in all files of directories."""
    codes = sorted(code(path) for path in _files(paths))
    whole = hashlib.sha256()
    for each in codes:
        whole.update(hashlib.sha256(each).digest())
    return whole.hexdigest()


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix != ".pyc" and COMPILED not in file.as_posix():
                yield file


def paths_of(name: str) -> list[Path]:
    """The files and directories that a protocol's number covers.

    Errors: ValueError where one is not there.
    """
    found = []
    for place in COVERED[name]:
        paths = [*ROOT.glob(f"packages/*/src/{place}")]
        if len(paths) != 1:
            raise ValueError(f"{name} covers {place}, which is not there")
        found += paths
    return found


@cache
def code(path: Path) -> bytes:
    """Return a file's effective code: its lines without comments, docstrings and imports."""
    content = path.read_bytes()
    if path.suffix == ".py":
        lines = _python(content)
    elif path.suffix in {".c", ".h"}:
        text = _C_COMMENT.sub(lambda found: found[1] or " ", content.decode())
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#include")]
    else:
        return content
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()


def _python(content: bytes) -> list[str]:
    lines = content.decode().split("\n")  # as tokens count them
    for token in tokenize.tokenize(io.BytesIO(content).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(content)):
        docstring = (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        if docstring or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            assert node.end_lineno is not None
            for row in range(node.lineno - 1, node.end_lineno):
                lines[row] = ""
    return lines


def current() -> dict[str, dict[str, Any]]:
    """Each protocol's number, and the digest of its code now."""
    return {
        name: {"number": number, "code": digest(paths_of(name))} for name, number in NUMBERS.items()
    }


def stale(known: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of protocols whose code changed while their number did not."""
    return [
        name for name, one in now.items()
        if known.get(name, {}).get("number") == one["number"] and known[name] != one
    ]  # fmt: skip


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description="Compare protocol numbers with their code.")
    parser.add_argument("--write", action="store_true", help="write digests of raised numbers")
    options = parser.parse_args()
    known, now = json.loads(RECORD.read_text()) if RECORD.exists() else {}, current()
    if forgotten := stale(known, now):
        print(f"raise {', '.join(forgotten)} in protocols.py: its code changed",
              file=sys.stderr)  # fmt: skip
        return 1
    if options.write:
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
    elif known != now:
        print("write the digests: python scripts/check_protocols.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
