"""A terminal is handed over even if its shell has ended by then."""

from __future__ import annotations

import os
import select
from dataclasses import replace

import pytest

from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from support.waiting import let_time_pass


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_what_a_short_command_printed_can_be_read(system: System, pause: float) -> None:
    with NamespaceSandbox(system) as sandbox:
        for text in ("shown", "again"):
            request = replace(Request(f"exec echo {text}"), tty=True)
            sandbox._shell(request, idle_seconds=60)
            let_time_pass(pause, "the shell ends meanwhile")
            (terminal,) = sandbox._ends(1)
            assert select.select([terminal], [], [], 30)[0], "it printed nothing"
            assert os.read(terminal, 100) == f"{text}\r\n".encode()
            os.close(terminal)
            sandbox.end_shell()
