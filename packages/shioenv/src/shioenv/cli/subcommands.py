"""All subcommands: those of the core, and those that other packages add through entry points.

The entry-point group is `shioenv.commands`. The name of an entry point is the dotted path of the
command, such as `predict` or `dataset.report`. Its value is `module:app`. A Typer app with a name
is a group of commands. An app without a name contains the command at the end of the path, and may
contain others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import typer

from shioenv.errors import HostError, ShioenvError, missing_guest

GROUP = "shioenv.commands"

KNOWN = {
    "doctor": "",
    "system": "",
    "system.derive": "eval",
    "system.remove": "",
    "run": "",
    "shell": "",
    "preview": "agents",
    "score": "",
    "grammar": "",
    "grammar.check": "eval",
    "grammar.stats": "eval",
    "grammar.coverage": "eval",
    "grammar.report": "eval",
    "grammar.usage": "eval",
    "grammar.draft": "eval",
    "grammar.parse": "eval",
    "grammar.show": "",
    "sample": "",
    "generate": "",
    "dataset": "",
    "dataset.stats": "eval",
    "dataset.show": "",
    "dataset.filter": "",
    "dataset.split": "",
    "dataset.merge": "eval",
    "dataset.export": "eval",
    "dataset.push": "eval",
    "dataset.import": "",
    "dataset.score": "",
    "dataset.repair": "",
    "dataset.leakage": "eval",
    "dataset.report": "eval",
    "tasks": "agents",
    "serve": "serve",
    "serve.mcp": "agents",
    "serve.e2b": "agents",
    "serve.openenv": "agents",
    "serve.openai": "serve",
    "serve.ssh": "serve",
    "serve.replay": "serve",
    "suite": "eval",
    "evaluate": "eval",
    "conform": "eval",
    "compare": "eval",
    "train": "model",
    "model": "model",
    "predict": "model",
    "reproduce": "paper",
    "experiment": "paper",
}
"""The extra that provides each command, in the order of the help; "" for commands of the core.

The command is in the package `shioenv-EXTRA`. In a group, unlisted commands of the core come first,
and those of other packages last, sorted by name.
"""

PANELS = {
    "Machines": ("doctor", "system"),
    "Inputs": ("run", "shell", "preview", "score"),
    "Datasets": ("grammar", "sample", "generate", "dataset"),
    "Agents and servers": ("tasks", "serve"),
    "Models and evaluation": (
        *("suite", "evaluate", "conform", "compare", "train", "model", "predict"),
        *("reproduce", "experiment"),
    ),
}
"""The panels of `shioenv --help`, with their commands."""

SHARED = {"serve": "Serve tasks and shells over the network."}
"""Help of groups that have no command in the core."""

HELP = frozenset({"", "help", "-h", "--help"})
"""Words that request help, as the first or second argument."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """A command, or a group of commands, that another package adds by an entry point."""

    path: str
    value: str
    package: str

    def app(self) -> typer.Typer:
        """Load the group of commands, or an unnamed app with the one command.

        Errors: HostError if the package cannot be loaded or has no such command. ShioenvErrors of
        the package pass through.
        """
        name = self.path.split(".")[-1]
        try:
            there: typer.Typer = resolve_name(self.value.split()[0])
            if there.info.name:
                made = copy(there)
                made.info = copy(there.info)
                made.info.name = name
            else:
                made = typer.Typer()
                commands = [each for each in there.registered_commands if name_of(each) == name]
                made.registered_commands = commands
                if not commands:
                    raise LookupError(f"it has no command {name}")
            if self.path not in KNOWN:
                typer.main.get_command(made)  # raises for faults that would break the whole help
        except ShioenvError:
            raise
        except (Exception, SystemExit) as error:
            fault = " ".join(f"{type(error).__name__}: {error}".split())
            raise HostError(
                f"{spoken(self.path)} of {self.package} cannot be loaded from {self.value}: {fault}"
            ) from error
        return made


def name_of(command: Any) -> str:
    """Return the name of a command that is registered in a Typer app."""
    return command.name or str(typer.main.get_command_name(command.callback.__name__))


def panel(word: str) -> str:
    """Return the panel of a subcommand in the help."""
    return next((name for name, words in PANELS.items() if word in words), "Other packages")


def spoken(path: str) -> str:
    """Return the words that call a command."""
    return f"shioenv {path.replace('.', ' ')}"


class Subcommands:
    """The subcommands, looked up and imported on demand."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        """A note about each ignored entry point, by path."""

    def subcommands(self, word: str, inner: str) -> list[typer.Typer]:
        """Return the app of the subcommand `word`, or the apps of all if there is none."""
        known = {path for path in KNOWN if "." not in path}
        if word in known:
            return [self._subcommand(word, inner)]
        words = known | {path.split(".")[0] for path in self._contributions}
        return [
            self._subcommand(each, inner)
            for each in ((word,) if word in words else _ordered(words))
        ]

    def remarks(self, word: str, inner: str) -> list[str]:
        """Return notes about commands that are missing from the help requested by these words."""
        begin = "" if word in HELP else f"{word}." if inner in HELP else None
        faults = sorted(self.faults.items())
        return [line for path, line in faults if begin is not None and path.startswith(begin)]

    def _subcommand(self, word: str, inner: str) -> typer.Typer:
        """Return a subcommand; for a group, include commands that packages add to it.

        Commands of packages are looked up only if `inner`, the next word, is not a command of the
        group itself.
        """
        base: typer.Typer | None = None
        if KNOWN.get(word) == "":
            base = import_module(f"shioenv.cli.{word}").app
        elif word not in SHARED:
            base = self._app(word)
        if base is not None and not base.info.name:
            return base
        added = self._added(word, inner, base)
        if base is None:
            if not any(added.values()):
                return stand_in(word)
            base = typer.Typer(name=word, no_args_is_help=True, help=SHARED.get(word))
        return _joined(word, base, added) if added else base

    def _added(
        self, word: str, inner: str, base: typer.Typer | None
    ) -> dict[str, typer.Typer | None]:
        """Return commands that packages add to a group, by path; None for missing ones."""
        path, own = f"{word}.{inner}", _own(word, base) if base else set()
        if path in own or (inner.startswith("-") and inner not in HELP):
            return {}
        paths = {path}
        if not KNOWN.get(path):
            inside = {each for each in KNOWN if KNOWN[each]} | self._contributions.keys()
            paths = {each for each in inside if each.startswith(f"{word}.")}
            for each in paths & own & self._contributions.keys():
                self._leave_out(self._contributions[each], "shioenv")
        return {each: self._app(each) for each in _ordered(paths - own)}

    def _app(self, path: str) -> typer.Typer | None:
        """Return the app of a contribution; None if no package provides it."""
        contribution = self._of_own_package(path) or self._contributions.get(path)
        if contribution is None:
            return None
        try:
            return contribution.app()
        except ShioenvError as error:
            self.faults[path] = error.message
            return stand_in(path, error)

    def _of_own_package(self, path: str) -> Contribution | None:
        """Return the contribution of a known command, from the metadata of its package only.

        With `importlib.metadata`, reading the metadata of all packages would take a tenth of the
        time of `shioenv predict`.
        """
        for package in _owners(path) if "_contributions" not in self.__dict__ else ():
            pattern = f"{package.replace('-', '_')}-*.dist-info/entry_points.txt"
            for file in (file for place in sys.path for file in sorted(Path(place).glob(pattern))):
                group = ""
                for line in file.read_text(encoding="utf-8").splitlines():
                    name, _, value = map(str.strip, line.partition("="))
                    if line.startswith("["):
                        group = line.strip("[] ")
                    elif (group, name) == (GROUP, path):
                        return Contribution(path, value, package)
        return None

    @cached_property
    def _contributions(self) -> dict[str, Contribution]:
        """The contribution of each path.

        A command of the core is never replaced. If several packages provide a command, the one in
        `KNOWN` is used, else the first by name.
        """
        from importlib.metadata import entry_points

        found: dict[str, Contribution] = {}
        for each in sorted(
            {
                Contribution(point.name, point.value, (point.dist and point.dist.name) or "")
                for point in entry_points(group=GROUP)
            },
            key=lambda each: (each.path, each.package not in _owners(each.path), each.package),
        ):
            if KNOWN.get(each.path) == "":
                self._leave_out(each, "shioenv")
            elif each.path in found:
                self._leave_out(each, found[each.path].package)
            elif not re.fullmatch(r"\w[\w-]*(\.\w[\w-]*)?", each.path):
                self.faults[each.path] = (
                    f"{each.path!r} of {each.package} is ignored: not NAME or GROUP.NAME"
                )
            else:
                found[each.path] = each
        return found

    def _leave_out(self, contribution: Contribution, owner: str) -> None:
        path, package = contribution.path, contribution.package
        self.faults[path] = f"{spoken(path)} of {package} is ignored: {owner} provides this command"


def _owners(path: str) -> tuple[str, ...]:
    """Return this project's packages that may provide a command outside the core."""
    return (f"shioenv-{KNOWN[path]}", "shioenv") if KNOWN.get(path) else ()


def _ordered(paths: Iterable[str]) -> list[str]:
    """Sort paths in the order of the help: known ones, then the others by name."""
    order = {path: place for place, path in enumerate(KNOWN)}
    return sorted(paths, key=lambda path: (order.get(path, len(order)), path))


def _own(word: str, group: typer.Typer) -> set[str]:
    """Return the paths of the commands that a group itself defines."""
    inner = [
        each.typer_instance.info.name for each in group.registered_groups if each.typer_instance
    ]
    names = [*map(name_of, group.registered_commands), *inner]
    return {f"{word}.{name}" for name in names}


def _joined(word: str, group: typer.Typer, added: Mapping[str, typer.Typer | None]) -> typer.Typer:
    """Copy the group with more commands, in the order of the help."""
    made = copy(group)
    made.registered_groups = list(group.registered_groups)
    commands = {f"{word}.{name_of(each)}": each for each in group.registered_commands}
    first = [path for path in commands if path not in KNOWN]
    for path, app in added.items():
        app = app or stand_in(path)
        if app.info.name:
            made.add_typer(app)
        else:
            commands[path] = app.registered_commands[0]
    rest = _ordered(commands.keys() - set(first))
    made.registered_commands = [commands[path] for path in (*first, *rest)]
    return made


def stand_in(path: str, error: ShioenvError | None = None) -> typer.Typer:
    """Create an app with a hidden command that raises `error` for any arguments.

    Without `error`, it raises the error of a package that is not installed.
    """
    app = typer.Typer()
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

    @app.command(path.split(".")[-1], hidden=True, context_settings=settings)
    def fail(context: typer.Context) -> None:
        inner = f"{path}.{''.join(context.args[:1])}"
        wanted = inner if inner in KNOWN else path
        raise error or missing_guest(spoken(wanted), KNOWN[wanted])

    return app
