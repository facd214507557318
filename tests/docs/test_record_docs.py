import re

import pytest
from msgspec import Struct

from shioenv.domain.context import FIELDS
from shioenv.domain.record import ContentDigest, Effect, Record, ScoredSegment
from shioenv_eval.export import fields_table
from support.paths import ROOT

REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("kind", [Record, ScoredSegment, Effect, ContentDigest])
def test_the_page_about_records_holds_what_their_declaration_says(kind: type[Struct]) -> None:
    table = fields_table(kind)
    assert f"|---|---|---|\n{table}\n\n" in (REFERENCE / "record.md").read_text(), table


def test_every_field_of_a_context_is_documented() -> None:
    text = (REFERENCE / "context-patch.md").read_text()
    section = text.partition("## The document")[2].partition("## Files")[0]
    cells = re.findall(r"^\| `([\w ]+)` \|", section, re.MULTILINE)
    assert sorted(" ".join(cells).split()) == sorted(FIELDS)
