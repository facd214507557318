"""`shioenv doctor`: what this host can do, and the exact fix for what it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from shioenv.cli import shared

if TYPE_CHECKING:
    from shioenv.system.host import HostCheck

LACKING = 3


def doctor(json: shared.Json = False) -> None:
    """Check this host by trying what is needed; exit status 3 where something needed is missing.

    Every line says what was tried; for what is missing also why it is needed and the exact fix.
    """
    from shioenv.sandbox.host import check_host

    checks = check_host()
    missing = [check for check in checks if check.needed and not check.ok]
    if json:
        shared.print_json(
            {"ok": not missing, "checks": [check.to_json() for check in checks]}, indent=2
        )
    else:
        _print(checks, len(missing))
    if missing:
        raise typer.Exit(LACKING)


def _print(checks: list[HostCheck], missing: int) -> None:
    from rich.text import Text

    console = shared.console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        state, style = ("OK", "green") if check.ok else ("missing", "red")
        if not check.ok and not check.needed:
            state, style = "optional", "yellow"
        line = Text(f"{state:8}", style=style)
        line.append(f"  {check.name:{width}}  ", style="default")
        line.append(check.detail, style="dim")
        console.print(line, soft_wrap=True)
        if not check.ok:
            for label, text in (("why", check.why), ("fix", check.fix)):
                console.print(Text(f"{'':10}{label}: {text}"), soft_wrap=True)
    print()
    print(f"{missing} missing" if missing else "this host can do everything that is needed")
