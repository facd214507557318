"""`shioenv serve openai`, `serve ssh` and `serve replay`: shells over the network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.interrupts import stoppable
from shioenv.cli.shell import AnsweringModel, MachineBelow

if TYPE_CHECKING:
    from shioenv_serve.listener import Door

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
            help="A key that clients have to show. The option may be given again. Other users of "
            "this host can read it in the list of processes.",
        ),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file of such keys, one a line.")
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, max=1024, metavar="N", help="Shells that are kept at once.")
    ] = 64,
    idle: Annotated[
        float,
        typer.Option(
            min=1, max=86_400, metavar="SECONDS", help="How long a shell waits for its next line."
        ),
    ] = 900.0,
    rate: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Requests a minute of one key, or else of one address.",
        ),
    ] = 1200,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write events as JSON, one a line. What is there stays."),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Wall time of one line.")] = 5.0,
) -> None:
    """Serve shells by OpenAI's protocol, as honeypots ask them, until Ctrl-C.

    Each conversation has a shell, and the answer is what the shell prints. A visitor can run
    anything in the machine, and nothing outside of it. The model's name in the protocol is that of
    --model, or else sandbox. Elsewhere than on this host's own addresses a key is wanted. The extra
    shioenv[openai] is needed.
    """
    from contextlib import ExitStack

    from shioenv.errors import MissingExtraError

    try:
        from shioenv_serve.listener import Door
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

    door, name = Door(host, port), model or "sandbox"
    keys = _keys(key or [], key_file, door)
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
        printing.note(f"the model's name is {name}; {sessions} shells at most")
        serve(front.application(), door, printing.note, openai_error)


@shared.command(app, "shioenv serve ssh ./visits --port 2222 --passwords try:3")
def ssh(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Gets log, recordings and uploads; holds the server's host keys."
        ),
    ],
    *,
    host: shared.Host = "127.0.0.1",
    port: shared.Port = 2222,
    passwords: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Which passwords pass: any, never, try:N (an address's Nth), or list:FILE of "
            "lines NAME:PASSWORD. Needed where other hosts reach the server (default where none "
            "does: any).",
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
        int, typer.Option(min=1, metavar="N", help="Connections at once.")
    ] = 200,
    per_address: Annotated[
        int, typer.Option(min=1, metavar="N", help="Connections of one address at once.")
    ] = 20,
    max_duration: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="End a connection after this time.")
    ] = 3600,
    delay: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="LEAST MOST", help="Seconds that an answer is held back, drawn for each line."
        ),
    ] = (0, 0),
) -> None:
    """Be an OpenSSH server with a machine of its own behind each visitor, until Ctrl-C.

    The server is the system's own sshd, in namespaces without a network. Whoever is let in can run
    anything in the machine, which nothing leaves, and which is thrown away afterwards. The log has
    Cowrie's events, with what each line changed.
    """
    import asyncio
    import signal
    from contextlib import ExitStack

    from shioenv.errors import UsageError
    from shioenv.files.regular import read_regular
    from shioenv.live.shells import Shells
    from shioenv.system.store import find_system
    from shioenv_serve.listener import Door, socket_url
    from shioenv_serve.ssh.login_policy import policy_of
    from shioenv_serve.ssh.machines import LIMITS
    from shioenv_serve.ssh.server import ServerBounds, SshServer

    door = Door(host, port)
    if passwords is None and not door.is_local:
        raise UsageError(
            f"who is let in at {host}?", hint="name it: --passwords any, never, try:3, list:FILE"
        )
    try:
        accepted = read_regular(authorized_keys) if authorized_keys else b""
    except OSError as error:
        raise UsageError(f"{authorized_keys} cannot be read: {error}") from None
    passing = policy_of(passwords or "any")
    with stoppable(), ExitStack() as stack:
        listening = stack.enter_context(door.opened())
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
        typer.Argument(metavar="SESSION", help="The session to show; without it, all are listed."),
    ] = None,
    *,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Execute the session's lines on a machine, and tell what differs."
        ),
    ] = False,
    system: shared.SystemName = None,
    speed: Annotated[
        float, typer.Option(min=0.01, metavar="X", help="How many times as fast to show it.")
    ] = _SPEED,
    pause: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="The longest pause that is kept.")
    ] = _PAUSE,
) -> shared.Printout:
    """Show a logged session again, with what each line changed, or execute it again.

    Of what the visitor had shown, sequences that do more than move, colour and erase are left out.
    The exit status is 1 where a line that is executed again does something else. Times are not
    compared, and what the log does not tell is not either.
    """
    from shioenv.errors import LogError, UsageError
    from shioenv_serve.cli import replaying
    from shioenv_serve.visit_log import read_visits

    if session is None and (again or (speed, pause) != (_SPEED, _PAUSE)):
        raise UsageError(
            "--again, --speed and --pause need a session",
            hint=f"shioenv serve replay {place} lists the sessions; name one of them",
        )
    visits = read_visits(place)
    if session is None:
        return replaying.visits_table(list(visits.values()))
    if session not in visits:
        raise LogError(f"{place} has no session {session}", hint=f"shioenv serve replay {place}")
    if again:
        return replaying.repeat_visit(visits[session], system)
    return replaying.play_visit(visits[session], speed, pause)


def _unwritten(error: Exception) -> None:
    """Report that the log cannot be written."""
    printing.note(f"the log cannot be written: {error}")


def _keys(given: list[str], file: Path | None, door: Door) -> list[str]:
    """Return the keys that clients must send. Errors: UsageError if they are missing or invalid."""
    from shioenv.errors import UsageError

    keys = list(given)
    if file is not None:
        try:
            keys += file.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from None
    for name in keys:
        if not name or not name.isascii() or not name.isprintable() or " " in name:
            raise UsageError("a key is one word of ASCII characters")
    if file is not None and not keys:
        raise UsageError(f"there is no key in {file}")
    if not keys and not door.is_local:
        raise UsageError(
            f"whoever reaches {door.host} could type into these shells",
            hint="name keys with --key-file FILE, or listen on 127.0.0.1",
        )
    return keys
