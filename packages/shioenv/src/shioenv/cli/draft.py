"""`shioenv grammar draft`: a first grammar, from what the command's help and manual say."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared

if TYPE_CHECKING:
    from shioenv.behavior.observe import SandboxRunner
    from shioenv.system.store import System


def opened(system: str | None) -> SandboxRunner:
    """A sandbox that tells outputs and exit codes, but no shell state."""
    from shioenv.behavior.observe import open_sandbox
    from shioenv.sandbox.base import Limits

    return open_sandbox(system, Limits(without_shell_state=True))


def executing(sandbox: SandboxRunner) -> Callable[[str], tuple[int, str]]:
    """A function that executes a text and gives its exit code and output."""

    def execute(text: str) -> tuple[int, str]:
        behavior = sandbox.run(text)
        return behavior.exit_code, behavior.text

    return execute


def draft(
    command: Annotated[str, typer.Argument(help="A program of the system, or a builtin of bash.")],
    manual: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The command's manual page in roff (default: the system's, else this host's).",
        ),
    ] = None,
    system: shared.SystemName = None,
) -> None:
    """Write a first grammar of a command from the system's own help text and manual page.

    The grammar has every option that the help shows, and passes `grammar check`. Values, weights
    and examples are a beginning, and comments say what was guessed. Redirect the grammar into
    NAME.grammar and go on from there.
    """
    from shioenv.grammar.draft import draft as drafted

    with opened(system) as sandbox:
        execute = executing(sandbox)
        package, version = _package(command, sandbox.system.packages, execute)
        page = _manual(command, manual, sandbox.system)
        text = drafted(command, execute, package=package, version=version, manual=page)
    guesses = sum(line.startswith("# - ") for line in text.splitlines())
    if guesses:
        printing.note(f"{guesses} guesses stand in the comment above the examples")
    printing.write(text.encode())


def _manual(command: str, file: Path | None, system: System) -> str:
    """The text of a command's manual page; "" where there is none and none is given."""
    from shioenv.errors import UsageError
    from shioenv.files.regular import read_regular
    from shioenv.grammar.help import LARGEST, manual_text

    if file is not None:
        try:
            return manual_text(read_regular(file, LARGEST))
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
    if "/" in command:
        return ""
    places = [f"/usr/share/man/man{n}/{command}.{n}{end}" for n in (1, 8) for end in ("", ".gz")]
    for place in places:
        if (content := system.content(place)) is not None:
            return manual_text(content)
    for place in filter(os.path.isfile, places):
        printing.note(f"the manual page is this host's, {place}: the system has none")
        return manual_text(read_regular(place, LARGEST))
    return ""


def _package(
    command: str, packages: Mapping[str, str], execute: Callable[[str], tuple[int, str]]
) -> tuple[str, str]:
    """The package that ships a command, by dpkg's lists on the system, and its version.

    A builtin is of `bash`. Any other command that no list names is a package of its own, with the
    version that the command tells, else 0.
    """
    from shioenv.bash.words import quoted

    program = quoted(command.partition("-")[0] if command.startswith("ip-") else command)
    kind, asked = execute(f"type -t -- {program}")
    if kind == 0 and asked.strip() in {"builtin", "keyword"}:
        return "bash", _upstream(packages.get("bash", "0"))
    _, output = execute(
        f"f=$(type -P -- {program}) && g=$(readlink -f -- $f) && for p in $f ${{f#/usr}} $g "
        "${g#/usr}; do grep -lxF -e $p /var/lib/dpkg/info/*.list; done 2>/dev/null | head -n 1"
    )
    name = output.strip().rpartition("/")[2].removesuffix(".list").partition(":")[0]
    if name in packages:
        return name, _upstream(packages[name])
    _, told = execute(f"{program} --version 2>&1 < /dev/null | head -n 3")
    version = re.search(r"\b\d+(?:\.\d+)+", told)
    own = re.sub(r"[^a-z0-9+.-]", "-", command.rpartition("/")[2].lower()).strip("-.+")
    return own or "unknown", version[0] if version else "0"


def _upstream(version: str) -> str:
    """A package's version without epoch and distribution suffix: `1:9.1-1+b1` -> `9.1`."""
    return version.rpartition(":")[2].partition("-")[0]
