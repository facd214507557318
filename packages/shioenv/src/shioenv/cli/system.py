"""`shioenv system`: build, list, show and remove systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shioenv.cli import printing, shared

if TYPE_CHECKING:
    from shioenv.system.store import System

_SHOWN = 20  # maximum differences printed; `--json` has all of them

app = typer.Typer(
    name="system",
    no_args_is_help=True,
    help="Build and manage systems, the machines that inputs run on.",
)

Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        autocompletion=shared.complete_systems,
        help="A declared system, or your own TOML file (default: debian-12).",
    ),
]


@shared.command(app, "shioenv system build debian-12")
def build(
    name: Name = None,
    rootfs_tar: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Start from this tarball of a root filesystem."),
    ] = None,
    called: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="With --rootfs-tar or --unlocked: the system's name."
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Install the packages again.")] = False,
    packages: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Take the locked packages (.deb files) from DIR."),
    ] = None,
    unlocked: Annotated[
        bool,
        typer.Option("--unlocked", help="Install what the mirrors serve now, under another name."),
    ] = False,
    microvm: Annotated[
        bool,
        typer.Option("--microvm", help="Also build the boot files for --sandbox microvm."),
    ] = False,
    kernel: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Kernel package (.deb) for --microvm (default: Debian's 6.18)."
        ),
    ] = None,
) -> shared.Printout:
    """Build a system in the cache, and check its shell.

    A system that is already built is reused. A system with the same name and another source is
    never replaced. Exactly the packages of the system's lock are installed. They come from this
    host's package mirrors while these serve them, else from a snapshot archive.
    """
    from shioenv.errors import UsageError
    from shioenv.sandbox.backends import load_backend, prove
    from shioenv.system.store import build_system

    if kernel and not microvm:
        raise UsageError("--kernel needs --microvm", hint="give both options, or neither")
    backend = load_backend("microvm", "--microvm") if microvm else None
    built_now: list[str] = []

    def report(line: str) -> None:
        built_now.append(line)
        printing.note(line)

    system = build_system(
        name,
        rootfs_tar=rootfs_tar,
        called=called,
        fresh=fresh,
        packages=packages,
        unlocked=unlocked,
        report=report,
    )
    was_there = any(line.startswith("already built") for line in built_now)
    prove(system, printing.note, anew=not was_there)
    if backend:
        backend.build(system, kernel, printing.note)
    return shared.Printout(_facts(system))


@shared.command(app, "shioenv system lock debian-12 --same-packages")
def lock(
    name: Name = None,
    build: Annotated[
        str | None,
        typer.Option(
            metavar="SYSTEM",
            autocompletion=shared.complete_systems,
            help="Lock the packages of this built system, not those on the mirrors.",
        ),
    ] = None,
    same_packages: Annotated[
        bool, typer.Option("--same-packages", help="Keep the packages, and update the digest.")
    ] = False,
) -> shared.Printout:
    """Write a system's lock: its exact packages and their digest.

    The lock is stored next to the declaration. Without options, the system is built from the
    mirrors' current packages, as NAME-unlocked, and these packages are locked.
    """
    from shioenv.system.lock import lock_system

    path = lock_system(name, build=build, same_packages=same_packages, report=printing.note)
    return shared.Printout({"lock": str(path)}, [f"wrote {path}"])


@shared.command(app, "shioenv system export debian-12 --out debian-12.oci.tar")
def export(
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")],
    name: Name = None,
) -> shared.Printout:
    """Write a built system to one file, the archive of an OCI layout.

    `system import FILE` restores the same digest on any host, without a mirror. Exports of the same
    system have the same bytes. The file includes the packages' licences.
    """
    from shioenv.files.durable import sha256_of
    from shioenv.system.exporting import export_system

    system = export_system(name, file, printing.note)
    size, sha256 = file.stat().st_size, sha256_of(file)
    rows = {
        "system": f"{system.name}, digest {system.digest}",
        "file": f"{file}, {size / 1e6:.1f} MB",
        "sha256": sha256,
    }
    document = {"name": system.name, "digest": system.digest, "file": str(file), "bytes": size}
    return shared.Printout({**document, "sha256": sha256}, printing.rows(rows), indent=2)


@shared.command(app, "shioenv system pull https://example.org/debian-12.oci.tar")
def pull(
    source: Annotated[
        str, typer.Argument(metavar="URL|FILE", help="URL or file of an exported system.")
    ],
    digest: Annotated[
        str,
        typer.Option(
            metavar="DIGEST",
            help="Expected digest of the system (default: that of its lock).",
        ),
    ] = "",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the system on this host.")
    ] = None,
) -> shared.Printout:
    """Get an exported system from a URL or a file, and check its digest."""
    from shioenv.sandbox.backends import prove
    from shioenv.system.importing import pull_system

    system = pull_system(source, digest=digest, name=name, report=printing.note)
    prove(system, printing.note, anew=True)
    return shared.Printout(_facts(system))


@shared.command(app, "shioenv system import web ./machine.tar", "import")
def import_(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of the new system; optional for an exported system."
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help="An exported system, a tarball of a root filesystem, or an OCI layout.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=shared.complete_systems,
            help="Declared system, or TOML file, from which machine, accounts, session and home "
            "tree are taken (default: debian-12).",
        ),
    ] = None,
) -> shared.Printout:
    """Make a system from an export, a tarball or a container image.

    An exported system keeps its digest. Any other image must contain Bash and `uname`. Missing
    commands of the shipped grammars are listed, and so are omitted files. An existing system is not
    replaced.
    """
    from shioenv.sandbox.backends import prove
    from shioenv.system.importing import import_system

    named, file = (None, name) if source is None else (name, source)
    imported = import_system(named, file, profile=profile, report=printing.note)
    system = imported.system
    prove(system, printing.note, anew=True)
    lacking, lacking_rows = _lacking(system)
    rows = {
        "system": f"{system.name}, digest {system.digest[:12]}",
        "made from": system.declaration.title,
        "omitted": str(imported.left_out),
        **lacking_rows,
        "next": f"shioenv generate ./records --system {system.name} --count 1000",
    }
    left_out = dict(imported.left_out.counts)
    document = {**_facts(system), **lacking, "left_out": left_out}
    return shared.Printout(document, printing.rows(rows), indent=2)


def _lacking(system: System) -> tuple[dict[str, list[str]], dict[str, str]]:
    """List a system's missing commands, and the kinds of change that it cannot record.

    Return both lists as a document, and again as rows of text. Only commands with a shipped grammar
    are listed.
    """
    from shioenv.grammar.library import load_grammars
    from shioenv.synthesis.sample import lacking
    from shioenv.system.importing import unread

    grammars = load_grammars(host_clock=system.host_clock)
    missing, unseen = lacking(system, grammars), unread(system)
    rows = {
        "commands": f"{len(grammars) - len(missing)} of {len(grammars)} with a grammar exist",
        "lacking": ", ".join(missing) or "none",
        "unread": "; ".join(unseen) or "nothing",
    }
    return {"lacking": list(missing), "unread": list(unseen)}, rows


@shared.command(app, "shioenv system list", name="list")
def list_() -> shared.Printout:
    """List declared and built systems."""
    from shioenv.errors import ShioenvError, SystemNotBuiltError
    from shioenv.system.store import list_systems

    table = printing.table(("system", "digest", "root filesystem"), left=3, no_wrap=True)
    document = []
    for name, system in list_systems():
        if not isinstance(system, ShioenvError):
            facts = {"digest": system.digest, "rootfs": str(system.rootfs), "why": None}
            table.add_row(name, system.digest[:12], str(system.rootfs))
        else:
            facts = {"digest": None, "rootfs": None, "why": system.message}
            absent = isinstance(system, SystemNotBuiltError)
            shown = f"{system.message}; {system.hint}" if absent else system.message
            table.add_row(name, "-", shown, style="dim" if absent else "yellow")
        document.append({"name": name, "built": facts["why"] is None, **facts})
    return shared.Printout(document, [table])


@shared.command(app, "shioenv system prune")
def prune() -> shared.Printout:
    """Remove unused files from the cache.

    These are replaced builds of systems, their packages, and the remains of interrupted builds.
    Datasets are not affected.
    """
    from shioenv.system.store import prune_systems

    removed = prune_systems(printing.note)
    document = [{"path": str(one.path), "bytes": one.bytes} for one in removed]
    total = sum(one.bytes for one in removed)
    return shared.Printout(document, [f"{len(removed)} removed, {total / 1e6:,.0f} MB"])


@shared.command(app, "shioenv system show debian-12 --json")
def show(name: Name = None) -> shared.Printout:
    """Show a built system: digest, location and declared machine."""
    from shioenv.system.store import find_system

    system = find_system(name)
    lacking, lacking_rows = _lacking(system)
    facts = _facts(system) | lacking
    machine = facts["machine"]
    rows = {
        "name": facts["name"],
        "digest": facts["digest"],
        "root filesystem": facts["rootfs"],
        "made from": facts["source"],
        "packages": len(facts["packages"]),
        "files": facts["entries"],
        "size": f"{facts['bytes'] / 1e6:.0f} MB",
        "shell": facts["shell"] or "not probed yet",
        "lower layer": facts["lower_layer"],
        "microVM": f"kernel {facts['microvm']['kernel']['release']}"
        if facts["microvm"]
        else "not built: --microvm",
        "machine": f"{machine['hostname']}: {machine['processors']} processor, "
        f"{machine['memory'] >> 20} MB memory, {machine['disk'] >> 20} MB disk",
        "time": f"declared, {facts['instant']}"
        if system.answers.clock == "declared"
        else f"the host's: {system.answers.why}",
        "kernel": f"declared, {system.declaration.machine.kernel.release}"
        if system.answers.kernel == "declared"
        else f"the host's: {system.answers.why}",
        "processor": "declared"
        if system.answers.processor == "declared"
        else f"the host's for loaders: {system.answers.why_processor}",
        "session": f"{facts['session']['user']} in "
        + ", ".join(facts["session"]["start_directories"]),
        **lacking_rows,
    }
    return shared.Printout(facts, printing.rows(rows, max(map(len, rows)) + 1), indent=2)


@shared.command(app, "shioenv system verify debian-12")
def verify(name: Name = None) -> shared.Printout:
    """Compare all files of a built system with the original build.

    Permissions, owners, times and contents are compared. The exit status is 1 if anything differs.
    """
    from shioenv.system.store import find_system

    system = find_system(name)
    found = list(system.differences())
    document = {"name": system.name, "files": system.facts["entries"], "differences": found}
    if not found:
        said = f"{system.name}: all {system.facts['entries']} files are unchanged since the build"
        return shared.Printout(document, [said])
    made = "--rootfs-tar FILE --name " if system.source.startswith("tar:") else ""
    again = f"shioenv system remove {system.name} && shioenv system build {made}"
    again += system.name if made else name or system.name
    hint = f"to restore the original: {again}"
    lines = [*found[:_SHOWN], *([f"and {len(found) - _SHOWN} more"] if found[_SHOWN:] else [])]
    return shared.Printout(document, [*lines, hint], status=1)


@shared.command(app, "shioenv system remove ubuntu-24.04")
def remove(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=shared.complete_systems,
            help="A built system by name, or its TOML file.",
        ),
    ],
) -> None:
    """Remove a built system's files.

    Datasets that were made with the system are kept. To replay or continue them, build the system
    again.
    """
    from shioenv.errors import SystemNotBuiltError
    from shioenv.system.declare import load_declaration
    from shioenv.system.store import remove_system

    built = load_declaration(name).name if name.endswith(".toml") else name
    if not remove_system(built):
        raise SystemNotBuiltError(
            f"the system {built} is not built here", hint="built systems: shioenv system list"
        )
    print(f"removed {built}")


def _facts(system: System) -> dict[str, Any]:
    """Build the document of `system build --json`, and most of that of `system show --json`."""
    from contextlib import suppress
    from json import loads

    from shioenv.sandbox.backends import find_backend, lower_layer

    backend = find_backend("microvm")
    declaration = system.declaration
    machine, session = declaration.machine, declaration.session
    shell = None
    with suppress(OSError, ValueError, KeyError):
        shell = loads((system.path / "shell.json").read_text())["mode"]
    return {
        "name": system.name,
        "digest": system.digest,
        "rootfs": str(system.rootfs),
        "source": system.source,
        "entries": system.facts["entries"],
        "bytes": system.facts["bytes"],
        "shell": shell,
        "lower_layer": lower_layer(),
        "machine": {
            "hostname": machine.hostname,
            "processors": machine.cpu.count,
            "memory": machine.memory,
            "disk": machine.disk,
        },
        "session": {"user": session.user, "start_directories": list(session.start_directories)},
        "instant": declaration.instant.isoformat(),
        "answers": dict(system.facts["answers"]),
        "microvm": backend.facts(system) if backend else None,
        "packages": dict(system.packages),
    }
