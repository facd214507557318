"""`shioenv` as a program. Importing this loads next to nothing: what takes time is loaded once an
interrupt ends the process without a traceback.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shioenv.cli.commands import app as app


def main() -> None:
    """Runs the command line and ends the process with its exit status.

    Ctrl-C ends the command with 130 at any time. While a subcommand works, Ctrl-C is an exception,
    since the subcommand has something to put away. Before that and after it the process just ends.
    What Ctrl-C does while Python itself starts, before this is called, is Python's.
    """
    try:
        import signal

        from shioenv.cli.interrupts import leave

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # nobody ignores it
            signal.signal(signal.SIGINT, leave)
        from shioenv.cli.commands import app

        app(prog_name="shioenv")
    except KeyboardInterrupt:  # before the handler stands, or between one and the other
        from shioenv.cli.interrupts import INTERRUPTED

        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader has seen enough; nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shioenv.cli.commands import app

    return app


if __name__ == "__main__":
    main()
