"""Generated pages of docs/reference: the command line, from its help, and the sets of grammars.

`python -m support.cli_reference docs/reference` writes them; `make docs` calls it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from shioenv.cli.main import app
from shioenv.grammar.library import PAPER, names_of_grammars

_HEAD = """\
# Command line

Made from the help texts by `make docs`.

Exit status: 0 done, 1 the work failed, 2 wrong usage, 3 this host lacks something (the message says
what, and the fix), 130 interrupted. Almost every subcommand has the option `--json`, which prints
JSON for programs on standard output. Errors and progress go to standard error; the codes of errors
are explained in [errors](../errors.md). `shioenv --install-completion` completes subcommands,
options, and the names of systems, commands and samplers in your shell.

| command | what it does |
|---|---|
{table}
## JSON

JSON is printed in valid UTF-8. Invalid bytes in a text, such as an argument or a path, become
U+FFFD. Then a second member has all bytes of the text in base64: `input_b64` for `input`. For a
list, such as `command`, the second member is a list too, with null for items that are not texts. If
the name of a member has invalid bytes, all names of its object are written like the file names in
context patches: an invalid byte as `\\xHH`, a backslash as two.
"""


_COMMANDS = """\
# Commands with a grammar

Sampling and generation draw from the set `paper` unless `--command` names others:
`--command ls --command df`, or `--command all`. Your own grammars belong to both sets. In a command
without a grammar each word counts as an argument.

## The paper's {paper} commands

`--command paper`, the default: the commands of the paper's Table 4.

{names}

## {more} more commands

`--command all`: the paper's commands and these.

{others}
"""


def plain(help_text: str) -> str:
    """Remove the escapes for rich's markup from the help of a subcommand."""
    return help_text.replace("\\[", "[")


def pages() -> dict[Path, str]:
    """Return every page by its place in docs/reference: an overview, and a page a subcommand."""
    root = typer.main.get_command(app)
    found = {Path("commands.md"): _command_sets()}
    rows = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            parts = [f"# shioenv {name}", "", plain(command.help or ""), ""]
            parts += [_section(*each) for each in commands(f"shioenv {name}", command)]
        else:
            parts = [_section(f"shioenv {name}", command).removeprefix("#")]
        found[Path("cli", f"{name}.md")] = "\n".join(parts)
        about = " ".join(plain(command.help or "").partition("\n\n")[0].split())
        rows.append(f"| [`shioenv {name}`](cli/{name}.md) | {about} |\n".replace("||", "\\|\\|"))
    return {Path("cli.md"): _HEAD.replace("{table}", "".join(rows)), **found}


def _command_sets() -> str:
    others = sorted(set(names_of_grammars()) - set(PAPER))
    return _COMMANDS.format(
        paper=len(PAPER), names=_listed(PAPER), more=len(others), others=_listed(others)
    )


def _listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command that can be called, with the words that call it."""
    if not hasattr(command, "commands") or command.invoke_without_command:
        yield path, command
    if not hasattr(command, "commands"):
        return
    for name, inner in command.commands.items():
        yield from commands(f"{path} {name}", inner)


def _section(path: str, command: Any) -> str:
    arguments = [
        (given.metavar or given.name.upper(), given.help or "")
        for given in command.params
        if given.param_type_name == "argument"
    ]
    options = [
        (_spelling(given), _description(given))
        for given in command.params
        if given.param_type_name == "option" and given.name != "help" and not given.hidden
    ]
    usage = [path, *(name for name, _ in arguments), "[OPTIONS]"]
    lines = [f"## {path}", "", f"    {' '.join(usage)}", "", plain(command.help or ""), ""]
    rows = arguments + options
    if rows:
        lines += ["| | |", "|---|---|"]
        lines += [f"| `{name}` | {text} |".replace("||", "\\|\\|") for name, text in rows]
        lines.append("")
    if command.epilog:
        example = command.epilog.removeprefix("Example: ")
        lines += ["Example:", "", f"    {example}", ""]
    return "\n".join(lines)


def _spelling(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    return f"{names} {option.metavar or option.name.upper()}"


def _description(option: Any) -> str:
    text = " ".join((option.help or "").split())
    default = option.default
    if option.show_default and default is not None and not option.is_flag:
        text += f" Default: {default}."
    return text


if __name__ == "__main__":
    home = Path(sys.argv[1])
    shutil.rmtree(home / "cli", ignore_errors=True)
    for place, text in pages().items():
        (home / place).parent.mkdir(exist_ok=True)
        (home / place).write_text(text, encoding="utf-8")
