import re
from pathlib import Path

from shioenv.domain.context import FIELDS
from shioenv.domain.record import NAMES

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def test_every_field_of_a_record_is_documented_in_order() -> None:
    text = (REFERENCE / "record.md").read_text().partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", text, re.MULTILINE) == list(NAMES)


def test_every_field_of_a_context_is_documented() -> None:
    text = (REFERENCE / "context-patch.md").read_text()
    section = text.partition("## The document")[2].partition("## Files")[0]
    cells = re.findall(r"^\| `([\w ]+)` \|", section, re.MULTILINE)
    assert sorted(" ".join(cells).split()) == sorted(FIELDS)
