"""Executed commands in place of a model's records."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shioenv_model.memory.example_records import Record
from shioenv_model.memory.rewrite import Kept, Taken


class Seen:
    """Commands by their texts, each parsed, with its result."""

    def __init__(self, commands: Sequence[tuple[str, Taken, Kept]]) -> None:
        self.texts = [text for text, _, _ in commands]
        self.records: list[Record] = [
            (number, taken, kept) for number, (_, taken, kept) in enumerate(commands)
        ]

    def with_option(self, utility: str, name: str, count: int, alone: bool) -> list[Record]:
        """See `shioenv_model.memory.example_records.WithOption`."""
        found = []
        for record in self.records:
            form = record[1].form
            names = {option for option, _ in form.options}
            wanted = names == ({name} if name else set()) if alone else {name} < names
            if form.utility == utility and wanted:
                found.append(record)
        return found[:count]

    def matching(self, utility: str, part: str, pattern: str, count: int) -> list[Record]:
        """See `shioenv_model.memory.example_records.Matching`."""
        found = [
            record
            for record, text in zip(self.records, self.texts, strict=True)
            if record[1].form.utility == utility and part in text and re.search(pattern, text)
        ]
        return sorted(found, key=lambda record: len(self.texts[record[0]]))[:count]
