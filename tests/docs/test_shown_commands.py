"""Every `shioenv …` in pages, help and hints is a valid command."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from shioenv.cli.main import app
from support.cli_reference import commands
from support.sources import FILES, TOGETHER, text_of, walked
from transcripts import ROOT, fences

PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / f"{name}.md" for name in ("README", "AGENTS", "CONTRIBUTING", "SECURITY")),
        *ROOT.glob("packages/*/README.md"),
    ]
)
SOURCES = FILES
TREE: Any = typer.main.get_command(app)

CLOSED = {
    "--compress",
    "--estimator",
    "--format",
    "--level",
    "--policy",
    "--sampler",
    "--sandbox",
    "--command",
}
"""Options with a closed set of values; `--policy` accepts files, too."""

PLACEHOLDER = re.compile(r"\$.*|…|\.\.\.|<.*>|[A-Z][A-Z_]*\d?(?:[/.:].*)?|.*\{\}.*")
"""A placeholder for a user's value, such as `DIR`, `N` or `$SEED`; `{}` in a hint."""

LEADS = re.compile(r"[|;&(){]+|exec|sudo|nice|time|then|do|[A-Z_]+=.*|uvx?|\$")
"""Words that may precede a command. After other words, `shioenv` needs a known subcommand."""

ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "<<<", "2>", "2>&1"}


def fault(words: list[str], *, whole: bool = True) -> str | None:
    """Return a command's fault, given the words after `shioenv`; None for a valid command.

    With `whole`, the command's required arguments must be present.
    """
    command, path = TREE, "shioenv"
    words = list(words)
    while hasattr(command, "commands"):
        options = {name for one in command.params for name in one.opts} | {"--help"}
        if not words:
            return (
                f"{path}: no subcommand" if whole and not command.invoke_without_command else None
            )
        if words[0].startswith("-"):
            return None if words[0].partition("=")[0] in options else f"{path}: no {words[0]}"
        if PLACEHOLDER.fullmatch(words[0]):
            return None
        if words[0] not in command.commands:
            takes = command.invoke_without_command and any(
                one.param_type_name == "argument" for one in command.params
            )
            if takes:
                break
            return f"{path}: no subcommand {words[0]}"
        path = f"{path} {words[0]}"
        command = command.commands[words.pop(0)]
    return _leaf(command, path, words, whole)


def _leaf(command: Any, path: str, words: list[str], whole: bool) -> str | None:
    if "--help" in words:
        return None
    context = command.context_class(command, info_name=path)
    try:
        values, rest, _ = command.make_parser(context).parse_args(list(words))
    except Exception as error:
        return f"{path}: {getattr(error, 'message', error)}"
    if rest and not all(PLACEHOLDER.fullmatch(word) for word in rest):
        return f"{path}: too many arguments: {rest}"
    for parameter in command.params:
        value = values.get(parameter.name)
        missing = value is None or type(value).__name__ == "Sentinel" or value == ()
        if whole and missing and parameter.required:
            return f"{path}: {parameter.opts[0]} is missing"
        for one in [] if missing else value if isinstance(value, list | tuple) else [value]:
            if not isinstance(one, str) or PLACEHOLDER.fullmatch(one):
                continue
            if why := _wrong(parameter, one, context, own="--grammars" in words):
                return f"{path}: {parameter.opts[0]}: {why}"
    return None


def _wrong(parameter: Any, value: str, context: Any, *, own: bool) -> str | None:
    """Return the fault in the value of an option or argument."""
    if parameter.type.name not in {"path", "directory", "file"}:
        try:
            parameter.type.convert(value, parameter, context)
        except Exception as error:
            return str(getattr(error, "message", error))
    if parameter.param_type_name == "argument":
        return None
    metavar = parameter.metavar or ""
    if re.fullmatch(r"[a-z]+(\|[a-z]+)+", metavar) and value not in metavar.split("|"):
        return f"{value} is none of {metavar}"
    name = parameter.opts[0]
    if name not in CLOSED or (name == "--command" and own):
        return None
    offered = [item.value for item in parameter.shell_complete(context, "")]
    if not offered or value in offered or (name == "--policy" and value.endswith(".json")):
        return None
    return f"{value} is none of {', '.join(offered[:9])}"


def called(line: str) -> Iterator[list[str]]:
    """Return the words after each `shioenv` that a line of shell calls."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&()<>")
        lexer.commenters = "#"
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # quotes that end on another line, as in a program
        return
    starts = [at for at, word in enumerate(words) if word.rpartition("/")[2] == "shioenv"]
    for start in starts:
        before = words[start - 1] if start else ";"
        behind = words[start + 1 : start + 2]
        if not (LEADS.fullmatch(before) or set(behind) & set(TREE.commands)):
            continue
        end = next(
            (at for at in range(start + 1, len(words)) if words[at] in ENDS or ")" in words[at]),
            len(words),
        )
        taken = words[start + 1 : end]
        if end < len(words) and words[end][0] in "<>" and taken and taken[-1] == "2":
            taken.pop()
        yield taken


def shown_in_blocks(text: str) -> Iterator[tuple[int, list[str], bool]]:
    """The commands of fenced blocks: line number, words, and whether they are whole."""
    for fence in fences(text):
        if fence.language in {"python", "json", "ini", "toml"}:
            continue
        joined, first = "", 0
        for number, line in enumerate(fence.lines, fence.line):
            first = first if joined else number
            joined += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            for words in called(re.sub(r"^\s*(?:\$ |- run: )", "", joined)):
                yield first, words, True
            joined = ""


def shown_in_sentences(text: str) -> Iterator[tuple[int, list[str], bool]]:
    """The commands of code in sentences, tables and comments of `docs-test`."""
    outside = re.sub(
        r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S
    )
    for number, line in enumerate(outside.splitlines(), 1):
        for code in re.findall(r"`([^`]*)`", line):
            for words in called(code):
                yield number, words, False
        if line.startswith(("    shioenv ", "shioenv ")):
            for words in called(line):
                yield number, words, True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_pages_are_taken(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    generated = page.parent.name == "cli"  # its usage lines name every option at once
    found = [
        f"{page.relative_to(ROOT)}:{number}: shioenv {shlex.join(words)}: {why}"
        for number, words, whole in [*shown_in_blocks(text), *shown_in_sentences(text)]
        if (why := fault(words, whole=whole and "[OPTIONS]" not in words and not generated))
        and "[OPTIONS]" not in words
    ]
    assert not found, "\n".join(found)


def test_commands_of_the_help_are_taken() -> None:
    found, examples = [], 0
    for path, command in commands("shioenv", TREE):
        example = (command.epilog or "").removeprefix("Example: ")
        texts = [command.help or "", *(one.help or "" for one in command.params)]
        shown = [(words, True) for words in called(example)]
        examples += len(shown)
        for text in texts:
            shown += [
                (words, False) for code in re.findall(r"`([^`]*)`", text) for words in called(code)
            ]
        found += [
            f"{path} --help: shioenv {shlex.join(words)}: {why}"
            for words, whole in shown
            if (why := fault(words, whole=whole))
        ]
    assert not found, "\n".join(found)
    assert examples >= 60


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """The texts of a module, docstrings included; `{}` replaces formatted values."""
    inside: set[int] = set()
    for node in walked(source):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            pieces = [
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            ]
            yield node.lineno, "".join(pieces)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside
        ):
            yield node.lineno, node.value


def begun(text: str) -> Iterator[list[str]]:
    """Find the commands of a message: in backticks, or up to the next word that is prose.

    Outside of backticks only a subcommand and its options can be separated from the sentence.
    """
    for code in re.findall(r"`([^`\n]*)`", text):
        yield from called(code)
    prose = re.sub(r"`[^`\n]*`", "", text)
    for clause in re.findall(r"(?:^|[:;,(] |or )shioenv ([a-z][^;,.()\n]*)", prose):
        words = clause.partition(" -- ")[0].split()
        command, taken = TREE, []
        while words and hasattr(command, "commands"):
            taken.append(words.pop(0))
            if taken[-1] not in command.commands:
                break
            command = command.commands[taken[-1]]
        valued = {name for one in getattr(command, "params", ()) for name in one.opts}
        yield [*taken, *(word for word in words if word in valued or word.startswith("--"))]


@TOGETHER
def test_commands_of_messages_are_taken() -> None:
    found, seen = [], 0
    for source in SOURCES:
        for number, text in texts_of(text_of(source)):
            for words in begun(text):
                seen += 1
                words = words[: words.index("--")] if "--" in words else words
                options = [word for word in words if word.startswith("--")]
                why = fault([word for word in words if word not in options], whole=False)
                why = why or _unknown_option(words, options)
                if why:
                    found.append(f"{source.relative_to(ROOT)}:{number}: {words}: {why}")
    assert not found, "\n".join(found)
    assert seen >= 100


def _unknown_option(words: list[str], options: list[str]) -> str | None:
    command: Any = TREE
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    known = {name for one in command.params for name in [*one.opts, *one.secondary_opts]}
    unknown = [word for word in options if word.partition("=")[0] not in known | {"--help"}]
    return f"no {unknown}" if unknown else None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("shioenv sampel --count 5", "no subcommand sampel"),
        ("shioenv dataset shuffle DIR", "no subcommand shuffle"),
        ("shioenv sample --cuont 5", "No such option"),
        ("shioenv sample --count five", "not a valid int"),
        ("shioenv sample --count 0", "0 is not in the range"),
        ("shioenv sample --sampler gsc", "gsc is none of gcs"),
        ("shioenv sample --policy mixd", "mixd is none of mixed"),
        ("shioenv train model ./x --out y --size huge", "huge is none of tiny|mini|small|base"),
        ("shioenv generate", "is missing"),
        ("shioenv run ls -la", "No such option"),
        ("shioenv dataset verify ./a ./b", "too many arguments"),
        ("true && shioenv nothing | head", "no subcommand nothing"),
        ("cd x; exec shioenv nothing $X", "no subcommand nothing"),
        ("[ -d x ] || { shioenv nothing; }", "no subcommand nothing"),
        ("docker run --rm image shioenv doctor --fast", "No such option"),
        ("uvx --from ./a.whl shioenv run", "is missing"),
    ],
)
def test_a_command_that_is_not_taken_is_seen(line: str, why: str) -> None:
    (words,) = called(line)
    assert why in str(fault(words))


def test_commands_that_are_taken_have_no_fault() -> None:
    for line in [
        "shioenv sample --count N --policy course.json  # a comment --cuont",
        "shioenv generate parts/$ID --seed $ID --count 12500 > log 2>&1",
        "shioenv run 'ls -la | head' && shioenv doctor",
        "printf 'shioenv nothing\\n' | shioenv shell --changes",
        "shioenv sample --grammars mine --command mine",
        "shioenv --version",
    ]:
        for words in called(line):
            assert fault(words) is None, line
