"""Sentences for newcomers are short, and their terms are explained."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest
import typer

from shioenv.cli.main import app
from support.cli_reference import commands
from support.paths import ROOT
from support.sentences import LONGEST, paragraphs, too_long
from support.sources import DISTRIBUTIONS

README = (ROOT / "README.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/how-to/develop.md",
    "docs/errors.md",
    "docs/performance.md",
]
PAGES += [f"docs/tutorial/{path.name}" for path in sorted((ROOT / "docs/tutorial").glob("*.md"))]


def helps() -> Iterator[tuple[str, str]]:
    """Every text of the command line's help, with its place."""
    for path, command in commands("shioenv", typer.main.get_command(app)):
        for paragraph in (command.help or "").split("\n\n"):
            yield path, " ".join(paragraph.split())
        for parameter in command.params:
            yield f"{path} {parameter.name}", " ".join((parameter.help or "").split())


def test_a_long_sentence_is_seen() -> None:
    words = ["word"] * 26
    assert too_long(f"Short. {' '.join(words)}. Short.") == [f"{' '.join(words)}."]
    assert too_long(f"{' '.join(words[:25])}. {' '.join(words[:25])}.") == []
    assert too_long(f"{' '.join(words[:13])}; {' '.join(words[:13])}.")
    assert too_long("Run `a b c d e f g h i j k l m n o p q r s t u v w x y z` once.") == []
    assert list(paragraphs("# A\n\nx\ny\n- b\n  c\n```\nd\n```\n| e | f |\n")) == [
        "x y", "b c", "e", "f",
    ]  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_sentences_of_pages_are_short(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    found = [one for paragraph in paragraphs(page) for one in too_long(paragraph)]
    assert found == []


def test_the_readme_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 130


def test_sentences_of_the_help_are_short() -> None:
    found = [(place, one) for place, text in helps() for one in too_long(text)]
    assert found == []


def test_terms_of_the_readme_are_explained_there_and_in_the_glossary() -> None:
    """A term is in italics at its first use, and the glossary defines it."""
    prose = " ".join(paragraphs(README))
    terms = re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", prose)
    assert {"irreducibility", "necessary", "gcs"} <= {term.lower() for term in terms}
    for term in terms:
        assert re.search(rf"\*\*{re.escape(term.lower())}\*\*", GLOSSARY), term
        first = re.search(rf"\b{re.escape(term)}\b", prose, re.IGNORECASE)
        assert first is not None
        assert prose[first.start() - 1] == "*", f"{term} stands somewhere before it is explained"


def changes(newest: str) -> list[tuple[str, list[str]]]:
    """The sections of one version, each with its kinds of changes.

    Fail for an item outside a section and a kind, and for a kind without items.
    """
    title, *sections = re.split(r"^### ", newest, flags=re.MULTILINE)
    assert len(title.strip().splitlines()) == 1, title
    found = []
    for section in sections:
        name, *parts = re.split(r"^#### ", section, flags=re.MULTILINE)
        assert len(name.strip().splitlines()) == 1, name
        kinds = [part.partition("\n\n- ") for part in parts]
        assert all(items for _, _, items in kinds), name
        found.append((name.strip(), [kind for kind, _, _ in kinds]))
    return found


def test_a_line_of_the_changelog_is_short_and_the_newest_section_is_this_version() -> None:
    """A line is an item of the list, with any number of sentences."""
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    items = re.findall(r"^- (.*(?:\n  .*)*)", page, re.MULTILINE)
    assert items
    assert [item for item in items if len(re.sub(r"`[^`]*`", "code", item).split()) > LONGEST] == []
    version, *others = re.findall(r"^## (.*)$", page, re.MULTILINE)
    core = ROOT / "packages" / "shioenv" / "pyproject.toml"
    project = tomllib.loads(core.read_text(encoding="utf-8"))["project"]
    assert project["version"] == (others[0] if version == "Unreleased" else version)
    assert f"`git tag v{project['version']}`" in (ROOT / "docs/how-to/develop.md").read_text()
    newest = re.split(r"^## ", page, flags=re.MULTILINE)[1]
    sections = changes(newest)
    interfaces = (ROOT / "docs/reference/interfaces.md").read_text(encoding="utf-8")
    packages = re.findall(r"^\| `(shioenv\w*)` \|", interfaces, re.MULTILINE)
    assert sorted(packages) == sorted(DISTRIBUTIONS)
    wanted = ["The repository", *(name.replace("_", "-") for name in packages)]
    found = [section for section, _ in sections]
    kinds = ["Added", "Changed", "Fixed"]
    for section, parts in sections:
        assert parts, section
        assert parts == [one for one in kinds if one in parts], section
    assert found == (wanted if version != "Unreleased" else [one for one in wanted if one in found])
    released = {kind for _, parts in sections for kind in parts}
    assert version == "Unreleased" or released == set(kinds)
