"""Arrays whose elements are walked through in the order of gawk's tables."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SIZES = (13, 127, 1021, 8191, 16381)
"""Lists of a table of texts: a table grows to the next (gawk 5.2, `str_array.c`)."""

_CHAIN = 2
"""Elements in a list, on the average, above which a table grows."""

_WHOLE = re.compile(r"0|[1-9]\d{0,8}")


class Elements:
    """An array: values by keys, which are texts."""

    def __init__(self) -> None:
        self._values: dict[str, float | str | None] = {}
        self._of_texts = False
        """Whether the first key was no whole number: then numbers stand among the texts."""

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def read(self, key: str) -> float | str | None:
        """The value of an element, which is made where it is missing."""
        if key not in self._values:
            self.write(key, None)
        return self._values[key]

    def write(self, key: str, value: float | str | None) -> None:
        """Sets the value of an element."""
        if not self._values:
            self._of_texts = not _WHOLE.fullmatch(key)
        self._values[key] = value

    def pop(self, key: str) -> None:
        """Removes an element, if there is one."""
        self._values.pop(key, None)

    def clear(self) -> None:
        """Removes all elements."""
        self._values.clear()

    def order(self) -> list[str]:
        """The keys in the order of a walk: texts by their hashes, then numbers from the smallest.

        Errors: ValueError for more keys than tables are known for.
        """
        numbers = [] if self._of_texts else [key for key in self._values if _WHOLE.fullmatch(key)]
        texts = [key for key in self._values if self._of_texts or not _WHOLE.fullmatch(key)]
        return [*_walked(texts), *sorted(numbers, key=int)]


def _walked(keys: list[str]) -> Iterator[str]:
    sizes = iter(_SIZES)
    lists: list[list[str]] = [[] for _ in range(next(sizes))]
    for count, key in enumerate(keys):
        if count // len(lists) > _CHAIN:
            size = next(sizes, 0)
            if not size:
                raise ValueError("a large array")
            old, lists = lists, [[] for _ in range(size)]
            for each in old:
                for moved in each:
                    lists[_hash(moved) % size].insert(0, moved)
        lists[_hash(key) % len(lists)].insert(0, key)
    for each in lists:
        yield from each


def _hash(key: str) -> int:
    """The hash of a text (Ozan Yigit's sdbm, as gawk takes it): 32 bits."""
    made = 0
    for byte in key.encode("utf-8", "surrogateescape"):
        made = (byte + made * 65599) & 0xFFFFFFFF
    return made
