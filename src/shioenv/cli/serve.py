"""`shioenv serve`: tasks for agents, and shells for honeypots, that come by the network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.shell import AnsweringModel, MachineBelow

if TYPE_CHECKING:
    from shioenv.fronts.serving import Door

app = typer.Typer(
    no_args_is_help=True, help="Tasks for agents, and shells, that come by the network."
)

Tasks = Annotated[
    Path, typer.Argument(metavar="FILE", help="The tasks, as shioenv tasks make writes them.")
]
Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is everywhere.")
]
Port = Annotated[
    int,
    typer.Option(min=0, max=65535, metavar="N", help="The port; 0 is any free one."),
]


@shared.command(app, "shioenv serve openenv ./tasks.jsonl --port 8000")
def openenv(
    file: Tasks,
    *,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    max_turns: Annotated[
        int, typer.Option(min=1, metavar="N", help="Lines an agent may type at most.")
    ] = 20,
    sessions: Annotated[
        int, typer.Option(min=1, metavar="N", help="Agents at once, each with its own sandbox.")
    ] = 16,
    limits: shared.LimitsOptions,
) -> None:
    """Serve tasks by OpenEnv's protocol, over HTTP and WebSocket, until Ctrl-C.

    Whoever reaches the port can run anything in the sandboxes, and nothing outside of them. The
    extra shioenv[openenv] is needed.
    """
    from shioenv.errors import MissingExtraError
    from shioenv.tasks.task import read_tasks

    tasks = read_tasks(file)
    try:
        from shioenv.fronts.openenv import application
        from shioenv.fronts.serving import Door, serve
    except ImportError:
        raise MissingExtraError("shioenv serve openenv", "openenv", "openenv") from None
    served = application(tasks, max_turns=max_turns, sessions=sessions, limits=limits)
    printing.note(f"{len(tasks)} tasks, {sessions} sessions at most")
    serve(served, Door(host, port), printing.note)


@shared.command(app, "shioenv serve openai --runner hybrid --log ./visits.jsonl")
def openai(
    *,
    runner: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            autocompletion=shared.completing(
                "sandbox", "hybrid", "shioenv.model.files:model_names"
            ),
            help="What answers. sandbox is a real machine for each visitor. default, or another "
            "model's name or file, executes nothing. hybrid is the default model where it is sure, "
            "and the machine elsewhere. KIND is the model's name in the protocol as well.",
        ),
    ] = "sandbox",
    system: shared.SystemName = None,
    cwd: shared.StartDirectory = None,
    machine_below: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="P",
            help="With hybrid: run what the model is less sure of.",
        ),
    ] = 0.9,
    host: Host = "127.0.0.1",
    port: Port = 8000,
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
        typer.Option(
            metavar="FILE", help="Write a line of JSON for each typed line. What is there stays."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Wall time of one line.")] = 5.0,
) -> None:
    """Serve shells by OpenAI's protocol, as honeypots ask them, until Ctrl-C.

    Each conversation has a shell, and the answer is what the shell prints. A visitor can run
    anything in the machine, and nothing outside of it. Elsewhere than on this host's own addresses
    a key is wanted. The extra shioenv[openai] is needed.
    """
    from contextlib import ExitStack

    from shioenv.errors import MissingExtraError

    try:
        from shioenv.fronts.openai import OpenAIFront, refusal
        from shioenv.fronts.serving import Door, serve
    except ImportError:
        raise MissingExtraError(
            "shioenv serve openai", "openai", "limits", "starlette", "uvicorn"
        ) from None
    from shioenv.fronts.linelog import LineLog
    from shioenv.fronts.shells import Shells
    from shioenv.fronts.visits import Visits
    from shioenv.sandbox.base import Limits

    door = Door(host, port)
    keys = _keys(key or [], key_file, door)
    with ExitStack() as stack:
        written = stack.enter_context(LineLog(log)) if log else None
        limits = Limits(wall_seconds=timeout)
        shells = Shells(runner, system, cwd, limits, sure=machine_below)
        stack.callback(shells.close)
        front = OpenAIFront(
            Visits(shells, sessions, idle),
            runner,
            keys=keys,
            rate=rate,
            log=written,
            note=printing.note,
        )
        printing.note(f"the model's name is {runner}; {sessions} shells at most")
        serve(front.application(), door, printing.note, refusal)


@shared.command(app, "shioenv serve ssh ./visits --port 2222 --policy try:3")
def ssh(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Gets log, recordings and uploads; holds the server's host keys."
        ),
    ],
    *,
    host: Host = "127.0.0.1",
    port: Port = 2222,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Which passwords pass: any, never, try:N (an address's Nth), or list:FILE of "
            "lines NAME:PASSWORD. Needed where the server listens elsewhere than on 127.0.0.1 "
            "(default there: any).",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys that pass, as a file authorized_keys has them."),
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
    seconds: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="How long a connection may last.")
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
    import socket

    from shioenv.errors import UsageError
    from shioenv.files.regular import read_regular
    from shioenv.fronts.ssh.policy import policy_of
    from shioenv.fronts.ssh.server import ServerBounds, SshServer
    from shioenv.fronts.ssh.shells import Asking
    from shioenv.system.store import find_system

    if policy is None and host not in {"127.0.0.1", "::1", "localhost"}:
        raise UsageError(
            f"who is let in at {host}?", hint="name it: --policy any, never, try:3, list:FILE"
        )
    try:
        accepted = read_regular(keys) if keys else b""
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=kind, backlog=128)
    except OSError as error:
        raise UsageError(f"the server cannot be started: {error}") from None
    with listener:
        asking = Asking(model, machine_below) if model else None
        served = SshServer(
            find_system(system or (asking.system if asking else None)),
            policy_of(policy or "any"),
            directory,
            bounds=ServerBounds(connections, per_address, seconds),
            accepted_keys=accepted,
            asking=asking,
            delay=delay,
        )
        printing.note(f"listening on {host} port {listener.getsockname()[1]}; log: {directory}")
        asyncio.run(served.serve(listener))


def _keys(given: list[str], file: Path | None, door: Door) -> list[str]:
    """The keys that clients have to show. Errors: UsageError where they are wanted or wrong."""
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
