"""The default model changes with a new number in the changelog."""

from __future__ import annotations

import re
from hashlib import sha256

from shioenv_model.files import DEFAULT, SHIPPED, SUFFIX
from support.paths import ROOT

SECTION = re.compile(r"^### shioenv-model\n(.*?)(?=^#{2,3} |\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^- Default model (\d+): SHA-256 `([0-9a-f]{64})`\.$", re.MULTILINE)


def test_the_newest_number_in_the_changelog_names_the_file() -> None:
    content = SHIPPED.joinpath(f"{DEFAULT}{SUFFIX}").read_bytes()
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = ENTRY.findall(page)
    assert entries == ENTRY.findall("".join(SECTION.findall(page))), (
        "the entries belong to the section shioenv-model"
    )
    number, digest = entries[0]
    assert digest == sha256(content).hexdigest(), (
        f"the default model changed: write `- Default model {int(number) + 1}: SHA-256 ...` above"
    )
    numbers = [int(number) for number, _ in entries]
    assert numbers == list(range(len(entries), 0, -1)), "each model has a number of its own"
