"""What tells that another run of an input may do something else (D-2v, ours where it goes on)."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch

FOUND_BY_LOOKING = frozenset(
    {"cpu_seconds", "memory_bytes", "processes", "scan_seconds", "sandboxes"}
)
"""Limits that are looked at now and then: how far a run came, or what is known of it, depends on
when."""

_PROC = re.compile(rb"dr-xr-xr-x +\d+ (nobody|nogroup|65534) ")
"""/proc in a long listing, of a system that is told the host's time. Its links are the processes of
the host, its time is the mount's. Else it is root's, with the same links everywhere.
"""


_BESIDES = re.compile(r"(?<!\|)\|(?!\|)|(?<![&>])&(?![&>])|[<>]\(|\bcoproc\b")
"""What has a shell start a process and go on: a pipe, a job, a process substitution."""

_TOOK = re.compile(
    rb"^curl: .* after \d+ (?:ms|milliseconds)|^\* .* after \d+ (?:ms|milliseconds)"
    rb"|^\d+ bytes .*copied, [\d.e+-]+ s, |^real[\t ](?:\d+m)?\d+\.\d+s?$"
    rb"| bytes from .* time[=<][\d.]+ ms$",
    re.MULTILINE,
)
"""How long something took, as curl, dd, the shell's `time` and ping say it."""

_WHILE_OTHERS_WRITE = re.compile(
    rb"xargs: (?:WARNING: a NUL|unmatched (?:single|double) quote|argument line too long)"
)
"""What xargs says while the last command that it started may still be writing."""


_effects = attrgetter(
    "exit_code", "timed_out", "patch", "content_digests", "output_truncated", "limits_hit"
)
"""What every run of an input has to do again."""


def disagree(first: Behavior, other: Behavior, *, ordered: bool = False) -> bool:
    """Whether another run did something else.

    Where the other run had two pipes the order between the channels is lost. Their outputs then
    have to make up the first one's in some order, unless the outputs are to be `ordered`.
    """
    return (
        _effects(first) != _effects(other)
        or (not first.output_truncated and not _made_up(first.output, other))
        or (ordered and first.output != other.output)
    )


def of_one_run(first: Behavior, channels: Behavior) -> Behavior:
    """What is recorded of a first run and one that had two pipes, or whose channels are unknown.

    Both together where nothing tells them apart. Else all is the second one's, whose output is
    whole where one of its channels is empty. Where it is not, or the second one alone reached a
    limit, all is the first one's, without channels.
    """
    if channels.stdout is None or channels.stderr is None:
        return replace(first, stdout=None, stderr=None)
    if not (disagree(first, channels) or first.output_truncated):
        return replace(first, stdout=channels.stdout, stderr=channels.stderr)
    if not (channels.stdout and channels.stderr) and set(first.limits_hit) >= {
        *channels.limits_hit
    }:
        return channels
    return replace(first, stdout=None, stderr=None)


def _made_up(output: bytes, other: Behavior) -> bool:
    """Whether the other run's channels, in some order, make up an output. Both lie in the output as
    they are, with gaps, and no other bytes do (ours; whether the gaps fit together is not looked
    at).
    """
    if not (other.stdout and other.stderr):
        return output == other.output
    return Counter(output) == Counter(other.output) and all(
        _lies_in(channel, output) for channel in (other.stdout, other.stderr)
    )


def _lies_in(part: bytes, whole: bytes) -> bool:
    left = iter(whole)
    return all(byte in left for byte in part)


def races(text: str) -> bool:
    """Whether an input's own shell has processes beside each other, as far as its text tells."""
    return _BESIDES.search(text) is not None


def unsettled(output: bytes) -> bool:
    """Whether an output tells by itself that another run's may be another one. It says how long
    something took, or what two processes wrote in an order that neither of them waits for.
    """
    return bool(_TOOK.search(output) or _WHILE_OTHERS_WRITE.search(output))


def dated(behavior: Behavior, moments: Iterable[float]) -> bool:
    """Whether the output shows the date of one of these moments of the host (seconds since 1970). A
    file that got such a date as its own counts too. Whoever sees real time (D-4) will show another
    date tomorrow.
    """
    return any(
        shows_date(behavior.output, moment) or _sets_date(behavior.patch, moment)
        for moment in moments
    )


def shows_date(output: bytes, moment: float) -> bool:
    """Whether the output holds the moment's date in one of the forms that programs print, or the
    first seven digits of its seconds since 1970.

    /proc shows such a moment as well. Every form tells the year, or what is young enough to be
    printed without it. Nothing of a system itself is as young as a run.
    """
    if _PROC.search(output):
        return True
    return any(date in output for date in _dates(int(moment)))


def shareable(text: str, behavior: Behavior, moments: Iterable[float]) -> bool:
    """Whether one execution of a sub-input may stand for others.

    It may not where it reached a limit or shows the date, and not with a pipe. What a program makes
    of its input may depend on the pieces it arrives in.
    """
    return not (behavior.volatile or behavior.limits_hit or "|" in text or dated(behavior, moments))


def _sets_date(patch: ContextPatch, moment: float) -> bool:
    """Whether a file got the moment's date as its own, as by `touch -d 0:00`: other times of a run
    are the system's instant in a patch.
    """
    if not patch.operations:
        return False
    day = time.gmtime(moment)
    date = {"year": day.tm_year, "month": time.strftime("%b", day), "day": day.tm_mday}
    files: dict[str, Mapping[str, Any]] = {}
    for kind, path, *values in patch.operations:
        parent, _, attribute = path.rpartition("/")
        if not path.startswith("/fs/"):
            continue
        if kind == "a" and isinstance(values[0], Mapping):  # else one attribute, a link's target
            files[path] = values[0]
        elif kind == "=" and attribute in date:
            files[parent] = {**files.get(parent, {}), attribute: values[0]}
    return any(
        "year" in attributes
        and all(attributes.get(name, date[name]) == date[name] for name in date)
        for attributes in files.values()
    )


@lru_cache(maxsize=4)
def _dates(moment: int) -> tuple[bytes, ...]:
    day = time.gmtime(moment)
    forms = ("%Y-%m-%d", "%b %e %H:", "%d %b %Y", "%e %b %Y", "%d/%b/%Y", "%x", "%Y%m%d")
    dates = {time.strftime(form, day).strip() for form in forms}
    return tuple(date.encode() for date in (*dates, str(moment)[:7]))
