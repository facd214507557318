"""The page `docs/reference/cli.md`, made from the subcommands' own help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from shioenv.cli import shared
from shioenv.cli.main import app

_HEAD = """\
# Command line

Made from the help texts by `make docs`; a test keeps it so.

Exit status: 0 done, 1 the work failed, 2 wrong usage, 3 this host lacks something (the message says
what, and the fix), 130 interrupted. Almost every subcommand has the option `--json`, which prints
JSON for programs on standard output. Errors and progress go to standard error; the codes of errors
are explained in [errors](../errors.md). `shioenv --install-completion` completes subcommands,
options, and the names of systems, commands and samplers in your shell.

JSON is printed in valid UTF-8. Where a text, such as an argument or a path, has other bytes, it has
U+FFFD for them. The member beside it, such as `input_b64` beside `input`, then has all bytes of the
text in base64. Beside a list, such as `command`, it is a list with the bytes of each text, and null
for what is no text. Where the name of a member has such bytes, the names of its object are written
as those of files in context patches: `\\xHH`, and two backslashes for one.
"""


def reference() -> str:
    """Return the whole page, ended by a newline."""
    parts = [_HEAD]
    for path, command in commands("shioenv", typer.main.get_command(app)):
        parts.append(_section(path, command))
    return "\n".join(parts)


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
    lines = [f"## {path}", "", f"    {' '.join(usage)}", "", shared.plain(command.help or ""), ""]
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
    print(reference(), end="")
