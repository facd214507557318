"""Resolve symbolic links in paths of a system, as the kernel does."""

from __future__ import annotations

from collections.abc import Callable

_MOST_STEPS = 400


def resolve(path: str, target: Callable[[str], str | None]) -> str | None:
    """Return the absolute path that `path` resolves to; None for a missing file or a link loop.

    `target` maps an absolute path to the target of the symbolic link there. It returns "" for any
    other file, and None if there is no file.
    """
    left = [part for part in path.split("/") if part][::-1]
    done: list[str] = []
    for _ in range(_MOST_STEPS):
        if not left:
            return "/" + "/".join(done)
        part = left.pop()
        if part == ".":
            continue
        if part == "..":
            done = done[:-1]
            continue
        leads = target("/" + "/".join([*done, part]))
        if leads is None:
            return None
        if leads:
            if leads.startswith("/"):
                done = []
            left += [step for step in leads.split("/") if step][::-1]
        else:
            done.append(part)
    return None
