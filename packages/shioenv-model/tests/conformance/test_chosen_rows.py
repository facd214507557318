"""The bundled model's answers about selected files and processes match the machine."""

from __future__ import annotations

import re

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_model.files import load_model
from shioenv_model.model import Model

LISTED = r"""
ps -o pid,user,tty
ps -o ppid= -p 1
ps -p 1 -o comm=
ps -p 1,436 -o user=,pid=
ps -C sshd
ps -C sshd,cron -o pid=
ps -C nobody
ps -f -p 1
ps -fp 436
ps -u ubuntu -o pid,comm
ps -u 1000 -f
ps -U nobody
ps -eo pid,comm --sort=-pid
ps -e --sort=user,-pid
ps -eo user,pid,args --sort -user
ps aux --sort=-pid --no-headers
ps --no-headers -eo pid
ps -p 99999 -o pid
find . -empty -ls
find documents -ls
find documents/ -name '*.txt' -ls
find ./logs -newer README.md -ls
find /home/ubuntu/data -maxdepth 1 -type d -ls
find archives -ls
cd documents; find . -name 'n*' -ls
cd /tmp; ps -C sshd -o pid,args
cd documents; find .. -maxdepth 1 -type f -ls
""".strip().split("\n")

OWN_MEMORY = re.compile(rb"(?<=^root        1000  0\.0  )[^?]*", re.M)
"""It differs from run to run."""


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model()


@pytest.mark.parametrize("text", LISTED)
def test_rows_of_a_list(text: str, model: Model, observer: SandboxRunner) -> None:
    said, right = model.run(text), observer.run(text)
    ours, theirs = (OWN_MEMORY.sub(rb"", each.output) for each in (said, right))
    assert (ours, said.exit_code) == (theirs, right.exit_code)
