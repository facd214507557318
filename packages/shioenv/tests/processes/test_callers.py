"""Settings and acts of a command's caller: a file size limit, a pipe without a reader."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = shlex.quote(str(Path(sys.executable).with_name("shioenv")))


def ran(words: str) -> subprocess.CompletedProcess[str]:
    script = f"set -o pipefail; {words.replace('shioenv', SCRIPT)}"
    return subprocess.run(
        ["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["run --help", "--help", "grammar show find", "sample --count 5 --command ls", "run 'seq 9'"],
)
@pytest.mark.usefixtures("system")
def test_an_output_that_nothing_reads_is_no_error(words: str) -> None:
    done = ran(f"shioenv {words} | true")  # `true` may end before or after the first line
    assert (done.returncode in {0, 141}, done.stderr.count("Traceback")) == (True, 0), done.stderr


@pytest.mark.parametrize("words", ["--help", "grammar show find", "sample --count 5 --command ls"])
@pytest.mark.usefixtures("system")
def test_the_exit_status_without_a_reader_is_that_of_sigpipe(words: str) -> None:
    done = ran(f"exec 4> >(exec <&-); wait $!; shioenv {words} >&4")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.usefixtures("system")
def test_a_small_limit_of_file_sizes_is_raised_or_named() -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        ["bash", "-c", f"{SCRIPT} run 'echo hi'"], preexec_fn=limited, capture_output=True,
        text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        assert done.returncode == 3
        assert "the limit of file sizes is 1,048,576 bytes" in done.stderr
        assert "ulimit -f" in done.stderr
    else:
        assert done.stdout == "hi\n"


@pytest.mark.usefixtures("system")
def test_a_soft_limit_of_file_sizes_is_raised() -> None:
    done = ran("ulimit -S -f 1; shioenv run 'echo hi'")
    assert (done.returncode, done.stdout) == (0, "hi\n")
