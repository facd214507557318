"""`shioenv shell`: a machine on the user's terminal, which is discarded at the end."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared

if TYPE_CHECKING:
    from shioenv.domain.behavior import Behavior
    from shioenv.live.asciicast import AsciicastWriter
    from shioenv.live.shell import Shell

app = typer.Typer()

SESSION_SECONDS = 86_400.0
"""Seconds of processor time available to the user at the terminal: one day."""

AnsweringModel = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        autocompletion=shared.completing("shioenv.live.answerer:model_names"),
        help="Answer with this model (a name or a file) instead of a machine.",
    ),
]

MachineBelow = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        metavar="P",
        help="With --model: use a machine if the model's confidence is below P.",
    ),
]


@shared.command(app, "shioenv shell --changes")
def shell(
    cwd: shared.StartDirectory = None,
    system: shared.SystemName = None,
    model: AnsweringModel = None,
    machine_below: MachineBelow = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Record input, output and changes to this file, for asciinema.",
        ),
    ] = None,
    changes: Annotated[
        bool, typer.Option("--changes", help="Show the changes made by each line.")
    ] = False,
) -> None:
    """Open a shell on a machine that is discarded at the end.

    On a terminal it is an interactive Bash with prompts, history, completion and full-screen
    programs. From a pipe or a file, each command is run as soon as its last line is read. A syntax
    error ends the script, as in Bash. Commands have an empty standard input. The exit status is
    that of the shell.
    """
    at_terminal = os.isatty(0) and os.isatty(1)
    with ExitStack() as stack:
        recording = None
        if record is not None:
            from shioenv.live.asciicast import AsciicastWriter

            columns, rows = os.get_terminal_size(1) if at_terminal else (80, 24)
            recording = stack.enter_context(AsciicastWriter(record, "shioenv shell", rows, columns))
        if model is None and at_terminal:
            status = _sit(cwd, system, recording, changes=changes)
        else:
            from shioenv.live.shells import Shells

            shells = stack.enter_context(Shells(model, machine_below, system, cwd))
            opened = shells.open()
            stack.callback(opened.close)
            status = _run_lines(opened, recording, at_terminal=at_terminal, changes=changes)
    raise typer.Exit(status)


def _sit(
    cwd: str | None, system: str | None, recording: AsciicastWriter | None, *, changes: bool
) -> int:
    """Connect the user's terminal to an interactive shell."""
    from shioenv.behavior.observe import open_sandbox
    from shioenv.live.attached import TerminalShell
    from shioenv.sandbox.base import Limits

    limits = Limits(cpu_seconds=SESSION_SECONDS)
    with open_sandbox(system, limits) as runner:
        name = os.environ.get("TERM", "xterm-256color")
        columns, rows = os.get_terminal_size(1)
        shell = TerminalShell(
            runner, cwd, terminal=name, rows=rows, columns=columns, idle_seconds=SESSION_SECONDS
        )
        with shell:
            start = cwd or runner.system.declaration.start_directory
            at_prompt = partial(_change_lines, start=start) if changes else None
            shell.attach(0, 1, recording=recording, at_prompt=at_prompt)
            return shell.look().exit_code


def _change_lines(behavior: Behavior, start: str) -> list[str]:
    """Return a line for each change of a behavior."""
    from shioenv.domain.readable import changes

    return [f"  {change}" for change in changes(behavior.patch.operations, start)]


def _run_lines(
    shell: Shell, recording: AsciicastWriter | None, *, at_terminal: bool, changes: bool
) -> int:
    """Run the commands of standard input, one after the other."""
    from shioenv.bash.complete import MOST_PARSED, ScriptReader
    from shioenv.errors import Abstained, InputError
    from shioenv.sandbox.base import LONGEST_INPUT

    def line(has_begun: bool) -> str:
        if script.begun > LONGEST_INPUT or script.parsed > MOST_PARSED:
            raise InputError(
                "a command of several lines is too long", hint="split it into several commands"
            )
        if not at_terminal:
            return os.fsdecode(sys.stdin.buffer.readline())
        return _typed("> " if has_begun else f"{shell.state.before.document['cwd']}# ")

    status = 0
    start = str(shell.state.before.document["cwd"]) if changes else ""
    script = ScriptReader()
    for command in script.commands(line):
        script.refused = script.refused and not at_terminal  # on a terminal, Bash continues
        if recording is not None:
            typed = command.replace("\n", "\r\n")
            recording.write_input(f"{typed}\r\n".encode("utf-8", "surrogateescape"))
        try:
            behavior = shell.run(command)
        except Abstained as error:
            printing.note(f"the model has no answer: {error.message}")
            continue
        except InputError as error:
            printing.note(f"{error.message}; continuing with the next command")
            status = error.exit_status
            continue
        status = script.status(behavior.exit_code)
        if recording is not None:
            recording.write_output(behavior.output.replace(b"\n", b"\r\n"))
            recording.write_behavior(command, behavior)
        sys.stdout.buffer.write(behavior.output)
        sys.stdout.flush()
        if changes:
            for change in _change_lines(behavior, start):
                printing.note(change)
        if shell.ended:
            break
    return status


def _typed(prompt: str) -> str:
    """Read the next line typed at a prompt, with its newline; "" at end of file."""
    import readline  # noqa: F401 - adds history and editing to input()

    try:
        return f"{input(prompt)}\n"
    except EOFError:
        print()
        return ""
