"""The pages of the command line are generated from its help; every subcommand has an example."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import typer

from shioenv.cli.main import app
from shioenv.cli.printing import MANY
from support.cli_reference import commands, pages, plain

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"


def test_the_pages_are_up_to_date() -> None:
    places = [*REFERENCE.glob("cli/*.md"), REFERENCE / "cli.md", REFERENCE / "commands.md"]
    written = {page.relative_to(REFERENCE): page.read_text() for page in places}
    assert written == pages(), "run `make docs`"


def test_no_page_is_long() -> None:
    assert max(len(text.split()) for text in pages().values()) < 3_000


def test_every_subcommand_shows_an_example_that_calls_it() -> None:
    for path, command in commands("shioenv", typer.main.get_command(app)):
        example = (command.epilog or "").removeprefix("Example: ")
        assert shlex.split(example)[: len(path.split())] == path.split(), path


def test_every_option_and_argument_is_explained() -> None:
    for path, command in commands("shioenv", typer.main.get_command(app)):
        for parameter in command.params:
            assert parameter.help, f"{path}: {parameter.name}"


def test_subcommands_named_in_the_docs_exist() -> None:
    known = {path for path, _ in commands("shioenv", typer.main.get_command(app))}
    groups = {path.rpartition(" ")[0] for path in known}
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]
    for page in pages:
        for first, second in re.findall(r"`shioenv ([a-z]+) ?([a-z][a-z0-9-]*)?", page.read_text()):
            named = f"shioenv {first}"
            if named in groups and second:
                named += f" {second}"
            assert named in known | groups, f"{page.name} names `{named}`"


def test_an_option_that_takes_a_number_somewhere_takes_one_everywhere() -> None:
    """A name has the same meaning in every subcommand."""
    numbers: set[str] = set()
    texts: set[str] = set()
    for _, command in commands("shioenv", typer.main.get_command(app)):
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag:
                shown = option.metavar or option.name.upper()
                number = re.fullmatch(r"[A-Z]|SECONDS|MINUTES", shown)
                (numbers if number else texts).update(option.opts)
    assert numbers & texts == {"--id"}, "of a record it is a number, of a suite's case a name"


def test_the_first_line_of_each_help_is_short_and_imperative() -> None:
    for path, command in commands("shioenv", typer.main.get_command(app)):
        first = plain(command.help or "").split("\n")[0]
        assert len(first) < 70, f"{path}: {first}"
        assert re.match(r"[A-Z][a-z]+ ", first), f"{path}: {first}"
        assert first.endswith("."), f"{path}: {first}"


def test_an_option_has_one_kind_of_value() -> None:
    """Two kinds of values show two meanings, which need two names."""
    kinds: dict[str, set[str]] = {}
    for _, command in commands("shioenv", typer.main.get_command(app)):
        for option in command.params:
            if option.param_type_name == "option":
                kind = "" if option.is_flag else option.metavar or option.name.upper()
                kinds.setdefault(option.opts[0], set()).add(kind)
    several = {name: found for name, found in kinds.items() if len(found) > 1}
    assert several.keys() == {"--id", "--out"}, several


def test_many_options_are_shown_in_panels() -> None:
    for path, command in commands("shioenv", typer.main.get_command(app)):
        options = [each for each in command.params if each.param_type_name == "option"]
        context = command.make_context(path, [], resilient_parsing=True)
        with redirect_stdout(StringIO()) as shown:
            command.format_help(context, context.make_formatter())
        panels = [option.rich_help_panel for option in options]
        assert len(set(panels)) > 1 or len(options) <= MANY, path
        assert max((panels.count(panel) for panel in panels), default=0) <= 10, path
        assert all(panel is None or f" {panel} " in shown.getvalue() for panel in panels), path


def test_what_a_subcommand_makes_elsewhere_is_out() -> None:
    """Of two arguments none is an output path: their order could be mistaken."""
    several = {
        path: [given.metavar for given in command.params if given.param_type_name == "argument"]
        for path, command in commands("shioenv", typer.main.get_command(app))
    }
    assert {path: names for path, names in several.items() if len(names) > 1} == {
        "shioenv compare": ["A", "B"],
        "shioenv dataset leakage": ["TRAIN", "TEST"],
        "shioenv dataset push": ["DIR", "OWNER/NAME"],
        "shioenv model push": ["MODEL", "OWNER/NAME"],
        "shioenv serve replay": ["PLACE", "SESSION"],
        "shioenv system import": ["NAME", "SOURCE"],
        "shioenv tasks push": ["PATH", "OWNER/NAME"],
    }
    made = {
        path
        for path, command in commands("shioenv", typer.main.get_command(app))
        if any("--out" in given.opts for given in command.params)
    }
    for verb in ("filter", "export", "import", "score", "report"):
        assert f"shioenv dataset {verb}" in made
