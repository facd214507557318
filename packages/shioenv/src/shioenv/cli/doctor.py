"""`shioenv doctor`: checks of this host, with the exact fix for each failed check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from shioenv.cli import shared

if TYPE_CHECKING:
    from rich.text import Text

    from shioenv.system.host_checks import HostCheck

app = typer.Typer()

LACKING = 3


@shared.command(app, "shioenv doctor")
def doctor() -> shared.Printout:
    """Check that this host can run inputs, and print fixes.

    Each check tries what a run needs. For a failed check, the reason and the exact fix are printed.
    The exit status is 3 if something needed is missing.
    """
    from shioenv.sandbox.backends import check_host

    checks = check_host()
    missing = sum(check.needed and not check.ok for check in checks)
    document = {"ok": not missing, "checks": [check.to_json() for check in checks]}
    return shared.Printout(
        document, _lines(checks, missing), indent=2, status=LACKING if missing else 0
    )


def _lines(checks: list[HostCheck], missing: int) -> Iterator[Text | str]:
    from rich.text import Text

    width = max(len(check.name) for check in checks)
    for check in checks:
        state, style = ("OK", "green") if check.ok else ("missing", "red")
        if not check.ok and not check.needed:
            state, style = "next" if check.next_step else "optional", "yellow"
        line = Text(f"{state:8}", style=style)
        line.append(f"  {check.name:{width}}  ", style="default")
        line.append(check.detail, style="dim")
        yield line
        if not check.ok:
            for label, text in (
                ("why", check.why),
                ("run" if check.next_step else "fix", check.fix),
            ):
                yield Text(f"{'':10}{label}: {text}")
    yield ""
    yield f"{missing} missing" if missing else "this host meets all requirements"
