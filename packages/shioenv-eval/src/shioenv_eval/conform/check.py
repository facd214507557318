"""Check a shell against the portable cases of shell-truth: python3 check.py 'bash -c'.

Each case is run as root in a fresh copy of the home tree, in a separate environment. Inputs may
harm the machine: run this as root of a disposable container. The exit status is 0 if all cases are
right, 1 if some are not, and 2 if nothing was run.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import lzma
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

LATE = 1000
"""Exit code that marks a timeout."""

SLACK = 10**9
"""Tolerance in nanoseconds between file system timestamps and the clock."""

OUTPUT_BYTES = 1 << 20
"""Maximum number of output bytes that are compared."""


def lay_out(files: list[dict[str, Any]], top: Path) -> None:
    """Create the files of the home tree below `top`, parents first."""
    for file in files:
        path = top / file["name"]
        if stat.S_ISLNK(file["mode"]):
            path.symlink_to(file["target"])
        elif stat.S_ISDIR(file["mode"]):
            path.mkdir(exist_ok=True)
        elif stat.S_ISFIFO(file["mode"]):
            os.mkfifo(path)
        else:
            path.write_bytes(base64.b64decode(file["content_b64"]))
        os.chown(path, file["uid"], file["gid"], follow_symlinks=False)
        if not stat.S_ISLNK(file["mode"]):
            path.chmod(stat.S_IMODE(file["mode"]))
    for file in reversed(files):  # set a directory's time after its contents exist
        os.utime(top / file["name"], (file["mtime"],) * 2, follow_symlinks=False)


def files_in(top: Path, began: int) -> dict[str, tuple[Any, ...]]:
    """Return the compared attributes of each file below `top`, ending with the content's SHA-256.

    All times since `began`, in nanoseconds, count as equal; other times are compared to the minute.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for directory, directories, names in os.walk(os.fsencode(top)):
        for name in (*directories, *names):
            path = os.path.join(directory, name)  # noqa: PTH118 - pathlib knows no bytes
            about = os.lstat(path)
            facts: tuple[Any, ...] = about.st_mode, about.st_uid, about.st_gid, "", None
            if stat.S_ISLNK(about.st_mode):
                facts = (*facts[:3], os.readlink(path), None)  # noqa: PTH115
            elif stat.S_ISREG(about.st_mode):
                with open(path, "rb") as file:  # noqa: PTH123
                    digest = hashlib.sha256(file.read()).hexdigest()
                new = began <= about.st_mtime_ns <= time.time_ns() + SLACK
                facts = (*facts[:3], -1 if new else about.st_mtime // 60, digest)
            found[named(os.path.relpath(path, os.fsencode(top)))] = facts
    return found


def named(path: bytes) -> str:
    r"""Return a file's name as in the cases: an undecodable byte as \xHH, a backslash doubled."""
    return path.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def run(words: list[str], text: str, top: Path, seconds: float) -> tuple[int, bytes]:
    """Return an input's exit code and output; the exit code is `LATE` on a timeout."""
    environment = {"HOME": str(top), "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*words, text], cwd=top, env=environment, umask=0o022, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = LATE
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return 128 - status if status < 0 else status, output.read(OUTPUT_BYTES)


def tried(words: list[str], text: str, files: list[Any], seconds: float) -> tuple[Any, ...]:
    """Run an input in a copy of the files.

    Returns its exit code and output, and the files before and after.
    """
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory) / "home"
        top.mkdir()
        lay_out(files, top)
        began = time.time_ns() - SLACK
        before = files_in(top, began)
        return (*run(words, text, top, seconds), before, files_in(top, began))


def differs(words: list[str], case: dict[str, Any], files: list[Any], seconds: float) -> set[str]:
    """Return the channels in which the shell differs from the case; empty if it agrees."""
    lines = "".join(f"{{ {line}\n}} >/dev/null 2>&1\n" for line in case["history"])
    code, output, before, after = tried(words, lines + case["input"], files, seconds)
    if case["history"]:  # `files` covers the input alone, without its history
        before = tried(words, f"{lines}:", files, seconds)[-1]
    wanted = case["output"].encode()
    if case["output_b64"] is not None:
        wanted = base64.b64decode(case["output_b64"])
    changed = {(name, "removed") for name in before.keys() - after.keys()}
    changed |= {(name, "added") for name in after.keys() - before.keys()}
    both = before.keys() & after.keys()
    changed |= {(name, "changed") for name in both if before[name] != after[name]}
    known = {file["name"]: file["sha256"] for file in case["files"] if file["sha256"]}
    found = {
        "exit code": code != case["exit_code"],
        "output": output.replace(b"\r\n", b"\n") != wanted.replace(b"\r\n", b"\n"),
        "files": changed != {(file["name"], file["change"]) for file in case["files"]},
        "contents": any(after.get(name, (None,))[-1] != known[name] for name in known),
    }
    return {name for name, differ in found.items() if differ}


def main() -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shell", help="command line; the input is appended as the last argument")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent, metavar="DIR")
    parser.add_argument("--cases", type=int, metavar="N", help="use only the first N cases")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS")
    given = parser.parse_args()
    if os.geteuid():
        print("error: not root; the cases were executed as root: run this as root", file=sys.stderr)
        return 2
    files = json.loads(lzma.decompress((given.data / "home.json.xz").read_bytes()))
    with lzma.open(given.data / "data" / "portable.jsonl.xz") as lines:
        cases = [json.loads(line) for line in lines][: given.cases]
    if not cases:
        print(f"error: {given.data} has no portable cases", file=sys.stderr)
        return 2
    words = shlex.split(given.shell)
    if not words or shutil.which(words[0]) is None:
        print(f"error: program {given.shell!r} not found", file=sys.stderr)
        return 2
    wrong: Counter[str] = Counter()
    right = 0
    for case in cases:
        where = differs(words, case, files, given.timeout)
        right += not where
        wrong.update(where)
        if where:
            print(json.dumps({"number": case["number"], "input": case["input"],
                              "differs": sorted(where)}))  # fmt: skip
    print(f"{right} of {len(cases)} right: {right / len(cases):.4f}; differ: {dict(wrong)}")
    return 0 if right == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
