"""Check whether a task's goal is reached: `tests/check.py` of a Harbor folder.

This program runs on a separate machine, where no agent ran. The files of that machine are the state
before; the evidence is the state after. It uses only the standard library, of Python 3.8 or newer.

    check.py GOAL ARTIFACTS REWARDS     judge
    check.py collect FILE               write the evidence, if it is not collected from outside

It writes `reward.json` (`reward` 0 or 1, `progress` 0 to 1), and prints missing and extra changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Entry = Mapping[str, Any] | None

ARTIFACTS = "/logs/artifacts"  # where a machine leaves what its verifier gets
EVIDENCE = "shioenv-state.json"
ANSWER = "answer.txt"
LONGEST = 1 << 20  # bytes of an answer that are read

# Files that Harbor, its agents and their terminals make or change. They do not count.
HARNESS = (
    "/logs", "/solution", "/tests", "/installed-agent", "/harbor", "/runtime",
    "/root/.bash_history", "/tmp/.hb-transfer", "/tmp/.harbor", "/tmp/.runtime", "/tmp/tmux",
    "/run/utmp", "/var/log/wtmp",
)  # fmt: skip
# Files that a container gets from its host. A machine observed from outside has none of them.
CONTAINER = (
    "/proc", "/sys", "/dev", "/run", "/.dockerenv",
    "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab",
)  # fmt: skip


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of these, is below one, or starts with the name of one."""
    return any(path == top or path.startswith((top + "/", top + "-", top + ".")) for top in tops)


def entry(path: str) -> Entry:
    """Return a file's entry in a goal: kind, permissions, owners; size, links and content."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    told: dict[str, Any] = {
        "mode": stat.filemode(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
    }
    if stat.S_ISLNK(status.st_mode):
        told["target"] = os.readlink(path)
    elif stat.S_ISREG(status.st_mode):
        told.update(size=status.st_size, links=status.st_nlink, sha256=digest(path))
    elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        told["device"] = status.st_rdev
    return told


def digest(path: str) -> str:
    """Return the SHA-256 of a file's content."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            found.update(piece)
    return found.hexdigest()


def everything() -> dict[str, Entry]:
    """Return the entries of all files that may count."""
    found = {"/": entry("/")}
    for top, directories, files in os.walk("/"):
        paths = [os.path.join(top, name) for name in directories + files]
        counts = {path for path in paths if not is_below(path, HARNESS + CONTAINER)}
        found.update((path, entry(path)) for path in counts)
        directories[:] = [name for name in directories if os.path.join(top, name) in counts]
    return found


def changed(evidence: Mapping[str, Any]) -> dict[str, Entry]:
    """Return the changed paths, each with its entry now; None for a removed file."""
    entries: Mapping[str, Entry] = evidence["entries"]
    if evidence["kind"] == "full":
        before = everything()
        paths = set(before) | set(entries)
        entries = {
            path: entries.get(path) for path in paths if before.get(path) != entries.get(path)
        }
    return {path: now for path, now in entries.items() if not is_below(path, HARNESS)}


def verdict(
    goal: Mapping[str, Any],
    evidence: Mapping[str, Any],
    answer: str | None,
    before: Callable[[str], Entry] = entry,
) -> tuple[list[str], list[str], float]:
    """Return the missing parts of a goal, the extra changes, and the fraction that holds.

    `answer` is the agent's answer, if any. `before` returns the entry of a file before the changes.
    """
    missing: list[str] = []
    extra = list(evidence.get("other", []))
    if evidence.get("truncated"):
        extra.append("more changes than can be listed")
    changes = changed(evidence)
    for path, wanted in goal["entries"].items():
        now = changes[path] if path in changes else before(path)
        if now != wanted:
            missing.append(path)
    extra += sorted(set(changes) - set(goal["entries"]))
    if goal["output"] is not None and (answer is None or lines(answer) != lines(goal["output"])):
        missing.append("the answer")
    total = len(goal["entries"]) + (goal["output"] is not None)
    return missing, extra, (total - len(missing)) / total if total else 0.0


def lines(text: str) -> list[str]:
    """Split a text into lines, without blank lines at the end.

    Each sequence of whitespace within a line becomes one space.
    """
    return "\n".join(" ".join(line.split()) for line in text.split("\n")).rstrip().split("\n")


def read(path: str) -> str | None:
    """Return the text of a file; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(LONGEST).decode("utf-8", "replace")
    except OSError:
        return None


def main(goal_file: str, artifacts: str, rewards: str) -> None:
    """Judge, print the result, and write the reward."""
    with open(goal_file, encoding="utf-8") as file:
        goal = json.load(file)
    try:
        with open(os.path.join(artifacts, EVIDENCE), encoding="utf-8") as file:
            evidence = json.load(file)
        missing, extra, progress = verdict(goal, evidence, read(os.path.join(artifacts, ANSWER)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        missing, extra, progress = [f"evidence: {error}"], [], 0.0
    print(json.dumps({"missing": missing, "extra": extra}, indent=1))
    with open(os.path.join(rewards, "reward.json"), "w", encoding="utf-8") as file:
        reward = int(not missing and not extra)
        json.dump({"reward": reward, "progress": round(progress, 4)}, file)


def collect(evidence_file: str) -> None:
    """Write the entries of all files of this machine."""
    with open(evidence_file, "w", encoding="utf-8") as file:
        json.dump({"kind": "full", "entries": everything()}, file)


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        collect(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
