"""Which names and passwords a server lets in."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

from shioenv.errors import UsageError
from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular

REMEMBERED: Final = 10_000
"""Addresses that a policy remembers at most, the newest; ours, because each takes a kilobyte."""


class PasswordPolicy(Protocol):
    """Decides about one password after the other."""

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether this password lets this user in from this address."""
        ...


class Always:
    """The same answer for everybody."""

    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def passes(self, address: str, user: str, password: str) -> bool:
        """See `PasswordPolicy.passes`."""
        return self._answer


class Listed:
    """Lets in the listed pairs of a name and a password. The name `*` is anybody."""

    def __init__(self, pairs: frozenset[tuple[str, str]]) -> None:
        self._pairs = pairs

    def passes(self, address: str, user: str, password: str) -> bool:
        """See `PasswordPolicy.passes`."""
        return (user, password) in self._pairs or ("*", password) in self._pairs


class AtTry:
    """Lets an address in at its nth try, with whatever it tries then.

    From then on the pair that it got in with is the right one for this address, and no other.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._seen: OrderedDict[str, int | tuple[str, str]] = OrderedDict()

    def passes(self, address: str, user: str, password: str) -> bool:
        """See `PasswordPolicy.passes`."""
        known = self._seen.pop(address, 0)
        if isinstance(known, int):
            known += 1
            if known >= self._number:
                known = (user, password)
        self._seen[address] = known
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return known == (user, password)


def policy_of(text: str) -> PasswordPolicy:
    """The policy that a text names: `any`, `never`, `try:N`, or `list:FILE`.

    The file has a line `NAME:PASSWORD` for each pair. Errors: UsageError.
    """
    kind, _, rest = text.partition(":")
    if text in {"any", "never"}:
        return Always(text == "any")
    if kind == "try" and rest.isdecimal() and int(rest) > 0:
        return AtTry(int(rest))
    if kind == "list" and rest:
        return Listed(_pairs(Path(rest)))
    raise UsageError(
        f"no policy is called {text!r}", hint="any, never, try:N with a number, or list:FILE"
    )


def _pairs(file: Path) -> frozenset[tuple[str, str]]:
    try:
        lines = lines_of(read_regular(file, LARGEST_LIST).decode())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    pairs = set()
    for number, line in enumerate(lines, 1):
        name, colon, password = line.partition(":")
        if not name or not colon:
            raise UsageError(f"{file}:{number}: {line!r:.60} is not NAME:PASSWORD")
        pairs.add((name, password))
    return frozenset(pairs)
