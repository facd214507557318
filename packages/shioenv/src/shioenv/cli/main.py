"""The program `shioenv`.

Importing this module loads almost nothing. `main` first makes interrupts end the process without a
traceback, then runs the slow imports.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import typer

    app: typer.Typer


def main() -> None:
    """Run the command line and end the process with its exit status.

    Ctrl-C ends the command with exit status 130 at any time. While a subcommand runs, Ctrl-C raises
    KeyboardInterrupt, because the subcommand may have to clean up. Before and after the subcommand,
    Ctrl-C ends the process at once. Before `main` is called, Python itself handles Ctrl-C.
    """
    _use_utf8()
    _open_standard_streams()
    try:
        import gc
        import signal

        from shioenv.cli.interrupts import leave

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # SIGINT is not ignored
            signal.signal(signal.SIGINT, leave)
        gc.set_threshold(100_000)  # imports create many objects, but no garbage
        word = "".join(sys.argv[1:2])
        if word == "predict":  # otherwise OpenBLAS starts threads that one input does not need
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from shioenv.cli.commands import application

        try:
            application(word, *sys.argv[2:3])(prog_name="shioenv")
        finally:
            sys.stdout.flush()  # so that a failure is reported below, not by Python at exit
    except KeyboardInterrupt:  # before `leave` is the handler, or between two handlers
        from shioenv.cli.interrupts import INTERRUPTED

        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        from shioenv.cli.interrupts import BROKEN_PIPE, is_reader_gone

        if not is_reader_gone():
            raise
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EBADF) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


def _use_utf8() -> None:
    """Start Python again in its UTF-8 mode if the locale has another encoding.

    Arguments, files and systems use names in UTF-8, and Python chooses the encoding of names when
    it starts. If `PYTHONIOENCODING` restricts standard output, unsupported characters are escaped.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _open_standard_streams() -> None:
    """Open /dev/null in place of each standard stream that the caller closed.

    Otherwise the next files and sockets would get the descriptors 0 to 2, and child processes would
    replace these by their own streams. As in GNU programs, reading a closed input and writing to a
    closed output remain errors: /dev/null is opened only for the opposite direction.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            mode = (os.O_WRONLY, os.O_RDONLY, os.O_RDWR)[number]
            os.set_inheritable(os.open(os.devnull, mode), True)  # gets the lowest free descriptor
        if getattr(sys, name) is None:
            how = "r" if number == 0 else "w"
            stream = open(number, how, errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shioenv.cli.commands import application

    return application()


if __name__ == "__main__":
    main()
