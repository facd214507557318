"""`shioenv serve openai`, `serve ssh` and `serve replay`: shells over the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.interrupts import stoppable
from shioenv.cli.shell import AnsweringModel, MachineBelow

app = typer.Typer()

_SPEED, _PAUSE = 1.0, 2.0


@shared.command(app, "shioenv serve openai --model default --log ./visits.jsonl")
def openai(
    *,
    model: AnsweringModel = None,
    machine_below: MachineBelow = None,
    system: shared.SystemName = None,
    cwd: shared.StartDirectory = None,
    host: shared.Host = "127.0.0.1",
    port: shared.Port = 8000,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="API key that clients must send. Repeatable. Other users of this host can read it "
            "in the process list.",
        ),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of API keys, one a line.")
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Maximum number of shells.")
    ] = 64,
    idle: Annotated[
        float,
        typer.Option(
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="End a shell after this time without a request.",
        ),
    ] = 900.0,
    rate: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Maximum requests per minute, by key or else by address.",
        ),
    ] = 1200,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Append events to this file, as JSON Lines."),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of a line.")] = 5.0,
) -> None:
    """Serve shells over OpenAI's protocol, for honeypots.

    Each conversation has a shell, and the reply is the shell's output. Clients can run anything in
    the machine, and nothing outside it. The protocol's model name is that of --model, or sandbox.
    If other hosts can connect, an API key is required. Needs the extra shioenv[openai]. Ctrl-C
    stops the server.
    """
    from contextlib import ExitStack

    from shioenv.errors import MissingExtraError

    try:
        from shioenv_serve.listener import ListenAddress, read_keys
        from shioenv_serve.openai import OpenAIFront, openai_error
        from shioenv_serve.serving import serve
    except ImportError:
        raise MissingExtraError(
            "shioenv serve openai", "openai", "limits", "starlette", "uvicorn"
        ) from None
    from shioenv.live.shells import Shells
    from shioenv.sandbox.base import Limits
    from shioenv_serve.events import EventLog
    from shioenv_serve.visits import Visits

    listen_address, name = ListenAddress(host, port), model or "sandbox"
    keys = read_keys(key or [], key_file, listen_address)
    with stoppable(), ExitStack() as stack:
        written = stack.enter_context(EventLog(log, name, _unwritten)) if log else None
        limits = Limits(wall_seconds=timeout)
        shells = stack.enter_context(Shells(model, machine_below, system, cwd, limits))
        front = OpenAIFront(
            Visits(shells, sessions, idle),
            name,
            keys=keys,
            rate=rate,
            log=written,
            note=printing.note,
        )
        printing.note(f"model {name}, at most {sessions} shells")
        serve(front.application(), listen_address, printing.note, openai_error)


@shared.command(app, "shioenv serve ssh ./visits --port 2222 --passwords try:3")
def ssh(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory for the log, recordings, uploads and host keys."
        ),
    ],
    *,
    host: shared.Host = "127.0.0.1",
    port: shared.Port = 2222,
    passwords: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            autocompletion=shared.completing("any", "never"),
            help="Accept any, never, try:N (the Nth of an address), or list:FILE (lines "
            "NAME:PASSWORD). Required if other hosts can connect (default: any).",
        ),
    ] = None,
    authorized_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Accept the keys in this file, as in ~/.ssh/authorized_keys."
        ),
    ] = None,
    system: shared.SystemName = None,
    model: AnsweringModel = None,
    machine_below: MachineBelow = None,
    connections: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum number of connections.")
    ] = 200,
    per_address: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum number of connections of one address.")
    ] = 20,
    max_duration: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="End a connection after this time.")
    ] = 3600,
    delay: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="LEAST MOST",
            help="Delay each answer by a random time between these, in seconds.",
        ),
    ] = (0, 0),
    sensor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of this server in each event (default: this host's name)."
        ),
    ] = None,
) -> None:
    """Run an OpenSSH server that gives each visitor a machine.

    The server is the system's sshd, in namespaces without a network. Visitors can run anything in
    their machine, and nothing outside it; it is discarded when they leave. The log has Cowrie's
    events, with the changes made by each line. Ctrl-C stops the server.
    """
    import asyncio
    import signal
    from contextlib import ExitStack

    from shioenv.errors import UsageError
    from shioenv.files.regular import read_regular
    from shioenv.live.shells import Shells
    from shioenv.system.store import find_system
    from shioenv_serve.listener import ListenAddress, socket_url
    from shioenv_serve.ssh.machines import LIMITS
    from shioenv_serve.ssh.server import ServerBounds, SshServer, policy_of

    listen_address = ListenAddress(host, port)
    if passwords is None and not listen_address.is_local:
        raise UsageError(
            f"--passwords is required because other hosts can connect to {host}",
            hint="--passwords any, never, try:3 or list:FILE",
        )
    try:
        accepted = read_regular(authorized_keys) if authorized_keys else b""
    except OSError as error:
        raise UsageError(f"--authorized-keys {authorized_keys} cannot be read: {error}") from None
    passing = policy_of(passwords or "any")
    with stoppable(), ExitStack() as stack:
        listening = stack.enter_context(listen_address.opened())
        shells = None
        if model is not None or machine_below is not None:
            shells = stack.enter_context(Shells(model, machine_below, system, limits=LIMITS))
        served = SshServer(
            find_system(system or (shells.system if shells else None)),
            passing,
            directory,
            bounds=ServerBounds(connections, per_address, max_duration),
            accepted_keys=accepted,
            shells=shells,
            delay=delay,
            sensor=sensor,
        )
        printing.note(
            f"running on ssh://{socket_url(listening)} (Ctrl-C stops it); log: {directory}"
        )
        if asyncio.run(served.serve(listening)) == signal.SIGINT:
            raise KeyboardInterrupt


@shared.command(app, "shioenv serve replay ./visits")
def replay(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="PLACE", help="The directory of serve ssh, or the log of serve openai."
        ),
    ],
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="The session to show (default: list all)."),
    ] = None,
    *,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Execute the session's lines on a machine, and show differences."
        ),
    ] = False,
    system: shared.SystemName = None,
    speed: Annotated[float, typer.Option(min=0.01, metavar="X", help="Playback speed.")] = _SPEED,
    pause: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Shorten longer pauses to this.")
    ] = _PAUSE,
) -> shared.Printout:
    """Replay a logged session, with the changes of each line.

    Terminal sequences that do more than move, colour and erase are removed. With --again, the exit
    status is 1 if a line has other effects than before. Times, and effects that the log does not
    contain, are not compared.
    """
    from shioenv.errors import LogError, UsageError
    from shioenv_serve.cli import replaying
    from shioenv_serve.visit_log import read_visits

    if session is None and (again or (speed, pause) != (_SPEED, _PAUSE)):
        raise UsageError(
            "--again, --speed and --pause need a session",
            hint=f"list the sessions: shioenv serve replay {place}",
        )
    visits = read_visits(place)
    if session is None:
        return replaying.visits_table(list(visits.values()))
    if session not in visits:
        raise LogError(f"{place} has no session {session}", hint=f"shioenv serve replay {place}")
    if again:
        return replaying.repeat_visit(visits[session], system)
    return replaying.play_visit(visits[session], speed, pause, plain=not sys.stdout.isatty())


def _unwritten(error: Exception) -> None:
    """Report that the log cannot be written."""
    printing.note(f"the log cannot be written: {error}")
