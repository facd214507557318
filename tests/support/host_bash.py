"""The Bash of the host as an oracle: the output of a few lines for each of many inputs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

_ASK = r"""
mapfile -d '' inputs
for input in "${inputs[@]}"; do
    (%s) </dev/null
    printf '\0%%s\0' "$?"
done
"""


def bash_says(program: str, inputs: Sequence[str]) -> list[tuple[str, int]]:
    """Return the program's output for each `$input`, errors included, and its status.

    Each runs in a subshell of one Bash. Its messages begin with `bash: line 4: `.
    """
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", _ASK % program],
        input="".join(f"{each}\0" for each in inputs).encode(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, env={"LANG": "C.UTF-8"},
    )  # fmt: skip
    parts = done.stdout.decode().split("\0")
    return [(parts[place], int(parts[place + 1])) for place in range(0, len(parts) - 1, 2)]
