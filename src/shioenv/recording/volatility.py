"""Signs that another run of an input may do something else (D-2v; ours where they go beyond it)."""

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
"""Limits that are checked only from time to time. How far a run came, or what is known of it,
depends on the moment of the check."""

_PROC = re.compile(rb"dr-xr-xr-x +\d+ (nobody|nogroup|65534) ")
"""/proc in a long listing, in a system that has the host's time. There its number of links depends
on the processes of the host, and its time is that of the mount. In other systems it belongs to root
and has the same number of links on every host.
"""


_BESIDES = re.compile(r"(?<!\|)\|(?!\|)|(?<![&>])&(?![&>])|[<>]\(|\bcoproc\b")
"""Syntax with which a shell starts a process and goes on: a pipe, a job, a process substitution, a
coprocess."""

_TOOK = re.compile(
    rb"^curl: .* after \d+ (?:ms|milliseconds)|^\* .* after \d+ (?:ms|milliseconds)"
    rb"|^\d+ bytes .*copied, [\d.e+-]+ s, |^real[\t ](?:\d+m)?\d+\.\d+s?$"
    rb"| bytes from .* time[=<][\d.]+ ms$",
    re.MULTILINE,
)
"""The time that something took, as curl, dd, the shell's `time` and ping print it."""

_WHILE_OTHERS_WRITE = re.compile(
    rb"xargs: (?:WARNING: a NUL|unmatched (?:single|double) quote|argument line too long)"
)
"""Messages of xargs that it prints while the last command it started may still be writing."""

_CREATES_ARCHIVE = re.compile(
    r"(?<![\w.-])tar\s(?:[^|;&\n]*?\s)?(?:-[^-\sCFHKLNTVXbfg]*c|--c(?:r\w*)?(?!\S))"
    r"|(?<![\w.-])tar\s+[^-\s]*c"
)
"""tar told to create an archive: by a letter of an option, the long option, or a first word without
a dash."""

_COMPRESSOR_ENDED = re.compile(rb"tar \(child\): |tar: Child returned status ")
"""Messages of tar whose compressor failed. A tar that reads waits for its compressor. A tar that
creates an archive prints, archives and writes until it notices."""


_effects = attrgetter(
    "exit_code", "timed_out", "patch", "content_digests", "output_truncated", "limits_hit"
)
"""The parts of a behavior that have to be the same in every run of an input."""


def disagree(first: Behavior, other: Behavior, *, ordered: bool = False) -> bool:
    """Whether another run did something else than the first.

    Where the other run had two pipes, the order between its channels is lost. Then its channels
    have to make up the first run's output in some order. With `ordered` the two outputs have to be
    the same bytes. Without it, they are not compared where the first run's output was truncated.
    """
    return (
        _effects(first) != _effects(other)
        or (not first.output_truncated and not _made_up(first.output, other))
        or (ordered and first.output != other.output)
    )


def of_one_run(first: Behavior, channels: Behavior) -> Behavior:
    """The recorded behavior of a first run and a run that had two pipes (`channels`).

    - Where the second run's channels are unknown, it is the first run without channels.
    - Where the two runs did the same, it is the first run with the second run's channels.
    - Else it is the second run, if one of its channels is empty, so that no order is lost. The
      second run must not have reached a limit that the first did not reach.
    - Else it is the first run without channels.

    A first run whose output was truncated does not count as the same.
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
    """Whether the channels of the other run make up an output in some order.

    The bytes of each channel have to be in the output in their order, with gaps. The output has to
    have no other bytes. Whether the gaps of both channels fit together is not checked (ours).
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
    """Whether the shell of an input has processes beside each other, as far as the text tells."""
    return _BESIDES.search(text) is not None


def unsettled(output: bytes, text: str) -> bool:
    """Whether an output of the input `text` tells that the output of another run may differ.

    Such an output says how long something took, or has what two processes wrote without waiting for
    each other. A tar that creates an archive does not wait for its compressor.
    """
    return bool(
        _TOOK.search(output)
        or _WHILE_OTHERS_WRITE.search(output)
        or (_COMPRESSOR_ENDED.search(output) and _CREATES_ARCHIVE.search(text))
    )


def dated(behavior: Behavior, moments: Iterable[float]) -> bool:
    """Whether the output shows the date of one of these moments (seconds since 1970, on the host).

    A file that got such a date as its own counts too. A program that sees real time (D-4) will show
    another date tomorrow.
    """
    return any(
        shows_date(behavior.output, moment) or _sets_date(behavior.patch, moment)
        for moment in moments
    )


def shows_date(output: bytes, moment: float) -> bool:
    """Whether the output holds the moment's date in one of the forms that programs print.

    The first seven digits of its seconds since 1970 count as a form, and so does /proc in a long
    listing (`_PROC`). Every form has the year, but for the one that `ls -l` prints of young files.
    No file of a system itself is as young as a run.
    """
    if _PROC.search(output):
        return True
    return any(date in output for date in _dates(int(moment)))


def shareable(text: str, behavior: Behavior, moments: Iterable[float]) -> bool:
    """Whether one execution of a sub-input may stand for others.

    It may not where it is volatile, reached a limit or shows the date, and not where the text has a
    `|`. What a program does with a pipe may depend on the pieces in which its input arrives.
    """
    return not (behavior.volatile or behavior.limits_hit or "|" in text or dated(behavior, moments))


def _sets_date(patch: ContextPatch, moment: float) -> bool:
    """Whether a file got the moment's date as its own, as `touch -d 0:00` does it.

    In a patch other times of a run are counted from the system's instant, not from the moment.
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
