"""Policies for accepting names and passwords."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

from shioenv.errors import UsageError
from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular

REMEMBERED: Final = 10_000
"""Maximum number of remembered addresses; the oldest is dropped first.

We chose this number because each address takes about a kilobyte.
"""


class PasswordPolicy(Protocol):
    """A policy that accepts or rejects passwords."""

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether this password lets this user in from this address."""
        ...


class Always:
    """Accepts every login, or rejects every login."""

    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether the password is accepted; see `PasswordPolicy.passes`."""
        return self._answer


class Listed:
    """Accept the listed pairs of a name and a password. The name `*` matches every user."""

    def __init__(self, pairs: frozenset[tuple[str, str]]) -> None:
        self._pairs = pairs

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether the password is accepted; see `PasswordPolicy.passes`."""
        return (user, password) in self._pairs or ("*", password) in self._pairs


class AtTry:
    """Accept an address at its nth attempt, with any name and password.

    From then on only the pair that was accepted is valid for this address.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._seen: OrderedDict[str, int | tuple[str, str]] = OrderedDict()

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether the password is accepted; see `PasswordPolicy.passes`."""
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
    """Parse a policy: `any`, `never`, `try:N`, or `list:FILE`.

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
        f"invalid --passwords {text!r}", hint="use any, never, try:N with a number, or list:FILE"
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
