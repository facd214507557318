"""Signs that another run of an input may behave differently.

Some are from D-2v, the others are our choice.
"""

from __future__ import annotations

import re
import time
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
"""Limits that are checked only from time to time. If a run reaches one, the behavior that is
recorded depends on the moment of the check."""

_PROC = re.compile(rb"dr-xr-xr-x +\d+ (nobody|nogroup|65534) ")
"""Matches /proc in a long listing, in a system with the host's time. There the number of
links of /proc depends on the host's processes, and its time is that of the mount."""


_BESIDES = re.compile(r"(?<!\|)\|(?!\|)|(?<![&>])&(?![&>])|[<>]\(|\bcoproc\b")
"""Syntax that starts a concurrent process: a pipe, a job, a process substitution, a coprocess."""

_TOOK = re.compile(
    rb"^curl: .* after \d+ (?:ms|milliseconds)|^\* .* after \d+ (?:ms|milliseconds)"
    rb"|^\d+ bytes .*copied, [\d.e+-]+ s, |^real[\t ](?:\d+m)?\d+\.\d+s?$"
    rb"| bytes from .* time[=<][\d.]+ ms$",
    re.MULTILINE,
)
"""Durations, as curl, dd, the shell's `time` and ping print them."""

_WHILE_OTHERS_WRITE = re.compile(
    rb"xargs: (?:WARNING: a NUL|unmatched (?:single|double) quote|argument line too long)"
)
"""Messages of xargs that it prints while the last command it started may still be writing."""

_CREATES_ARCHIVE = re.compile(
    r"(?<![\w.-])tar\s(?:[^|;&\n]*?\s)?(?:-[^-\sCFHKLNTVXbfg]*c|--c(?:r\w*)?(?!\S))"
    r"|(?<![\w.-])tar\s+[^-\s]*c"
)
"""tar with an option to create an archive: a letter, the long option, or a first word without a
dash."""

_COMPRESSOR_ENDED = re.compile(rb"tar \(child\): |tar: Child returned status ")
"""Messages of tar if its compressor failed. When reading, tar waits for its compressor. When
creating an archive, tar continues to print and write until it notices the failure."""


_effects = attrgetter("exit_code", "timed_out", "patch", "content_digests")
"""The parts of a behavior that must be the same in every run of an input."""


def disagree(first: Behavior, other: Behavior, *, ordered: bool = False) -> bool:
    """Whether another run differed from the first, in which output and error shared one pipe.

    If the other run had two pipes, the order between its channels is lost, and each channel has a
    separate limit. Then the first run's output must be a merge of the channels, or of beginnings of
    them if it was truncated. With `ordered`, both runs must have the same output and have
    reached the same limits.
    """
    if _effects(first) != _effects(other):
        return True
    if ordered or other.stdout is None or other.stderr is None:
        return (first.output, first.limits_hit) != (other.output, other.limits_hit)
    if _other_limits(first) != _other_limits(other):
        return True
    if not first.output_truncated and (
        other.output_truncated or len(first.output) != len(other.output)
    ):
        return True
    return not merges(first.output, other.stdout, other.stderr)


def of_one_run(first: Behavior, channels: Behavior) -> Behavior:
    """Return the recorded behavior of a first run and a run that had two pipes (`channels`).

    - If the second run's channels are unknown, the result is the first run without channels.
    - If the two runs behaved the same, the result is the first run with the second run's channels.
    - Otherwise it is the second run, if one of its channels is empty, so that no order is lost. The
      second run must not have reached a limit that the first did not reach.
    - Otherwise it is the first run without channels.
    """
    if channels.stdout is None or channels.stderr is None:
        return replace(first, stdout=None, stderr=None)
    if not disagree(first, channels):
        return replace(first, stdout=channels.stdout, stderr=channels.stderr)
    if not (channels.stdout and channels.stderr) and set(first.limits_hit) >= {
        *channels.limits_hit
    }:
        return channels
    return replace(first, stdout=None, stderr=None)


@lru_cache(maxsize=16)  # the same runs are compared several times
def merges(output: bytes, one: bytes, other: bytes) -> bool:
    """Whether an output is a merge of a beginning of `one` and a beginning of `other`.

    The time is proportional to the product of both lengths: .3 seconds for two channels of 64 KiB.
    """
    if not (one and other):
        return (one or other).startswith(output)
    ones, others = _places(one), _places(other[::-1])
    last = len(other) - 1
    reached = 1  # bit i: i bytes so far can be from `one`, if all others are from `other`
    for place, byte in enumerate(output):
        from_other = others.get(byte, 0)
        if place <= last:
            from_other >>= last - place
        else:
            from_other <<= place - last
        reached = (reached & ones.get(byte, 0)) << 1 | reached & from_other
        if not reached:
            return False
    return True


def _places(text: bytes) -> dict[int, int]:
    """Map each byte of a text to its positions: bit i for position i."""
    digits = text[::-1]
    return {
        byte: int(digits.translate(bytes(49 if each == byte else 48 for each in range(256))), 2)
        for byte in set(text)
    }


def _other_limits(behavior: Behavior) -> list[str]:
    """Return the limits that a run reached, apart from the limit on its kept output."""
    return [name for name in behavior.limits_hit if name != "output_bytes"]


def races(text: str) -> bool:
    """Whether the shell of an input has concurrent processes, according to its text."""
    return _BESIDES.search(text) is not None


def unsettled(output: bytes, text: str) -> bool:
    """Whether an output of the input `text` shows that the output of another run may differ.

    Such an output contains a duration, or the text of two processes that wrote without waiting for
    each other. For example, a tar that creates an archive does not wait for its compressor.
    """
    return bool(
        _TOOK.search(output)
        or _WHILE_OTHERS_WRITE.search(output)
        or (_COMPRESSOR_ENDED.search(output) and _CREATES_ARCHIVE.search(text))
    )


def dated(behavior: Behavior, moments: Iterable[float]) -> bool:
    """Whether the output shows the date of one of these moments (seconds since 1970, on the host).

    This also applies to a file with such a date as its time. A program that sees real time (D-4)
    will show another date tomorrow.
    """
    return any(
        shows_date(behavior.output, moment) or _sets_date(behavior.patch, moment)
        for moment in moments
    )


def shows_date(output: bytes, moment: float) -> bool:
    """Whether the output contains the moment's date in one of the usual formats.

    The first seven digits of the seconds since 1970 count as a format, and so does /proc in a long
    listing (`_PROC`). Every format has the year, except that of `ls -l` for recent files. That
    one is unambiguous too, because no file of the pristine system is as recent as a run.
    """
    if _PROC.search(output):
        return True
    return any(date in output for date in _dates(int(moment)))


def shareable(text: str, behavior: Behavior, moments: Iterable[float]) -> bool:
    """Whether one execution of a sub-input may be reused in other sessions.

    An execution is not reused if it is volatile, reached a limit or shows the date, or if the text
    has a `|`. The behavior of a program that reads a pipe may depend on the pieces in which its
    input arrives.
    """
    return not (behavior.volatile or behavior.limits_hit or "|" in text or dated(behavior, moments))


def _sets_date(patch: ContextPatch, moment: float) -> bool:
    """Whether a file was given the moment's date as its time, as by `touch -d 0:00`.

    Files that were merely written during the run do not count: a patch has their times relative to
    the system's instant.
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
        if kind == "a" and isinstance(values[0], Mapping):  # else one attribute: a link's target
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
