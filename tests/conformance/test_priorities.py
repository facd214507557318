"""What a caller is allowed of the processor is not what its inputs show."""

from __future__ import annotations

import subprocess
import sys

from needs import needs

from shioenv.system.store import System

ASK = """
from shioenv.behavior.observe import open_sandbox
with open_sandbox({system!r}) as sandbox:
    print(sandbox.run("nice; ionice; cat /proc/self/oom_score_adj").text)
"""


@needs("root")  # an ordinary user cannot lower its own niceness
def test_inputs_of_a_nice_caller_have_the_declared_priorities(system: System) -> None:
    def answer(*prefix: str) -> str:
        command = [*prefix, sys.executable, "-c", ASK.format(system=system.name)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    plain = answer()
    assert plain.splitlines() == ["0", "none: prio 0", "0", ""]
    assert answer("nice", "-n", "5", "ionice", "-c", "3", "choom", "-n", "300", "--") == plain
