"""The installed command line on the built system, like a user's calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shioenv.system.store import System
from support.nightly import NIGHTLY

pytestmark = pytest.mark.usefixtures("system")
SHIOENV = Path(sys.executable).with_name("shioenv")


def shioenv(*words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(SHIOENV), *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def run(*words: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(shioenv("run", "--json", *words).stdout)
    return found


def test_run_tells_what_an_input_did() -> None:
    found = run("ls documents/notes.txt; touch x; exit 7")
    assert found["exit_code"] == 7
    assert found["output"] == "documents/notes.txt\n"
    assert [operation[:2] for operation in found["context_patch"]] == [["a", "/fs/x"]]  # type: ignore[attr-defined]


def test_what_bash_refuses_is_a_behavior() -> None:
    found = run("ls 'unclosed")
    assert found["exit_code"] == 2
    assert "unexpected EOF" in str(found["output"])


def test_the_wall_time_is_an_option() -> None:
    found = run("echo begun; sleep 60", "--timeout", "0.5")
    assert (found["exit_code"], found["timed_out"], found["output"]) == (124, True, "begun\n")


def test_the_start_directory_is_an_option_and_has_to_exist() -> None:
    assert run("pwd", "--cwd", "/tmp")["output"] == "/tmp\n"
    assert "SHIO-S09" in shioenv("run", "x", "--cwd", "/nope", status=2).stderr


def test_score_finds_arguments_with_the_grammar() -> None:
    found = json.loads(shioenv("score", "--json", "ls -laT 32").stdout)
    assert found["input_args"] == ["ls", "-l<ns>", "<ns>a<ns>", "<ns>T 32"]
    assert found["exact"] is True
    assert 0 < found["irreducibility"] < 1
    assert "nothing changes" in shioenv("score", "ls -laT 32").stdout


def test_sample_is_one_object_a_line_and_the_same_for_the_same_seed() -> None:
    words = ("sample", "--sampler", "gcs", "--count", "20", "--seed", "5", "--json")
    first, again = shioenv(*words).stdout, shioenv(*words).stdout
    assert first == again
    samples = [json.loads(line) for line in first.splitlines()]
    assert len(samples) == 20
    assert all(one["input"].startswith("cd ") and one["input_args"] for one in samples)


def test_system_show_has_the_fixed_names(system: System) -> None:
    found = json.loads(shioenv("system", "show", "--json").stdout)
    assert (found["name"], found["digest"]) == (system.name, system.digest)
    assert Path(found["rootfs"]).is_dir()


def test_doctor_finds_nothing_missing_where_the_tests_run() -> None:
    found = json.loads(shioenv("doctor", "--json").stdout)
    assert found["ok"] is True
    assert {"kernel", "user namespaces", "overlay on tmpfs", "sandbox"} <= {
        check["name"] for check in found["checks"]
    }


def test_a_dataset_is_made_verified_described_and_shown(tmp_path: Path) -> None:
    directory = tmp_path / "dataset"
    words = ("generate", directory, "--count", "12", "--seed", "3", "--budget", "4")
    made = shioenv(*words, "--workers", "2", "--command", "echo", "--command", "ls")
    assert "12, 12 of them new" in made.stdout
    assert made.stderr.count("first record  cd /home/ubuntu; ") == 1
    (went,) = (line for line in made.stdout.splitlines() if line.startswith("time spent"))
    assert [part.split()[1] for part in went[len("time spent") :].split(",")] == [
        "commands", "sandbox", "opening", "recording", "drawing",
    ]  # fmt: skip
    again = shioenv(*words[:-2], "--workers", "1", "--command", "echo", "--command", "ls")
    assert "0 of them new" in again.stdout
    assert "first record" not in again.stderr
    assert "no problems" in shioenv("dataset", "verify", directory, "--replay", "3").stdout
    assert json.loads(shioenv("dataset", "verify", directory, "--json").stdout)["records"] == 12
    assert shioenv("dataset", "show", directory, "--count", "2").stdout.count("exit code") == 2
    assert "record 7" in shioenv("dataset", "show", directory, "--id", "7").stdout
    other = shioenv("generate", directory, "--count", "12", "--seed", "4", status=2)
    assert "budget" not in other.stderr  # what is not given is as it was
    assert "seed: 3 in the dataset, 4 requested" in other.stderr
    shard = directory / "data" / "00000.ndjson"
    shard.write_bytes(shard.read_bytes().replace(b'"exit_code":0', b'"exit_code":1', 1))
    assert "sha256" in shioenv("dataset", "verify", directory, status=1).stdout


def test_ctrl_c_stops_a_generation_and_says_that_nothing_is_lost(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [str(SHIOENV), "generate", str(tmp_path / "dataset"), "--count", "5000"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert "/5000 records" in process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 130
    assert "the same command resumes" in rest
    assert "Traceback" not in rest


@NIGHTLY
def test_the_examples_in_the_help_work(tmp_path: Path) -> None:
    import typer

    from shioenv.cli.main import app
    from support.cli_reference import commands

    tried = 0
    for path, command in commands("shioenv", typer.main.get_command(app)):
        example = (command.epilog or "").removeprefix("Example: ")
        changes_systems = path.endswith(("system build", "system prune", "system remove"))
        reaches_out = path == "shioenv model get"  # test_hub
        waits_a_minute = path.startswith(("shioenv suite", "shioenv evaluate"))  # test_evaluation
        if changes_systems or reaches_out or waits_a_minute or " ./" in example:
            continue
        done = subprocess.run(
            ["bash", "-c", f"shioenv() {{ {SHIOENV} \"$@\"; }}; {example}"],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, (example, done.stderr)
        tried += 1
    assert tried >= 6


def test_lines_of_standard_input_are_answered_at_once() -> None:
    asked = [str(SHIOENV), "run", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(asked, text=True, **pipes) as program:  # type: ignore[call-overload]

        def answer(line: str) -> dict[str, Any]:
            program.stdin.write(f"{line}\n")
            program.stdin.flush()
            found: dict[str, Any] = json.loads(program.stdout.readline())
            return found

        assert answer("touch made; cat")["context_patch"][0][:2] == ["a", "/fs/made"]
        assert answer('{"input": "pwd", "cwd": "/nope"}')["code"] == "SHIO-S09"
        found = answer('{"input": "ls; pwd", "cwd": "/tmp", "history": ["touch b"]}')
        assert (found["output"], found["context_patch"]) == ("b\n/tmp\n", [])
        assert answer("ls /tmp")["output"] == "", "each line finds the pristine machine"
        program.stdin.close()
        assert program.wait() == 1
        assert program.stderr.read() == ""


def test_nobody_reads_the_answers() -> None:
    asked = [str(SHIOENV), "run", "-"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(asked, **pipes) as program:  # type: ignore[call-overload]
        program.stdin.write(b"true\n")
        program.stdin.flush()
        assert program.stdout.readline()
        program.stdout.close()
        program.stdin.write(b"true\ntrue\n")
        program.stdin.close()
        assert program.wait() == 141
        assert program.stderr.read() == b""
