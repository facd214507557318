"""Everything named in docs/how-to/first-change.md exists: files, tests, names of the code."""

from __future__ import annotations

import re

from support.paths import ROOT
from support.sources import DISTRIBUTIONS

PAGE = (ROOT / "docs/how-to/first-change.md").read_text(encoding="utf-8")


def test_every_test_to_copy_is_in_the_file_that_is_named() -> None:
    rows = re.findall(r"^- Test to copy: `((?:packages|tests)/\S+\.py)`(.*)$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for file, rest in rows:
        for name in re.findall(r"`(test_\w+)`", rest):
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), name


def test_files_and_directories_are_there() -> None:
    named = re.findall(r"(?<![\w/])((?:packages|tests|shioenv\w*)/[\w./-]+\w)", PAGE)
    assert len(named) > 8
    for name in named:
        if "NAME" not in name:
            homes = [ROOT, *(one / part for one in DISTRIBUTIONS.values() for part in ("", "src"))]
            assert any((home / name).exists() for home in homes), name
