"""Commands work the same in every locale, and print what its encoding lacks as escapes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(sys.executable).with_name("shioenv"))

LOCALES = {
    "POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "ascii": {"LANG": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
}


def ran(locale: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    command = [SCRIPT, *words]
    return subprocess.run(
        command, env=usual | LOCALES[locale], capture_output=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.usefixtures("system")
def test_a_command_does_the_same_in_every_locale(tmp_path: Path, locale: str) -> None:
    text = "echo žluťoučký"
    document = json.loads(ran(locale, "run", "--json", text).stdout)
    assert (document["input"], document["output"]) == (text, "žluťoučký\n")
    sampled = ran(locale, "sample", "--count", "2", "--command", "ls", "--json")
    assert (sampled.returncode, sampled.stderr) == (0, b"")
    made = ran(locale, "generate", str(tmp_path / "made"), "--count", "2", "--workers", "1")
    assert made.returncode == 0, made.stderr.decode()
    told = json.loads(ran(locale, "preview", "--json", "--", "printf", "%s", "dž").stdout)
    assert (told["command"], told["output"]) == (["printf", "%s", "dž"], "dž")


def test_what_the_encoding_lacks_is_escaped() -> None:
    refused = ran("ascii", "run", "--system", "žluť", "true")
    assert refused.returncode == 2
    assert b"\\u017elu\\u0165" in refused.stderr
    assert b"Traceback" not in refused.stderr


@pytest.mark.usefixtures("system")
def test_an_input_that_is_not_utf8_is_valid_unicode_with_its_bytes_beside() -> None:
    word = b"caf\xe9"
    for before, field in ((["run"], "input"), (["preview"], "command")):
        words = [b"echo " + word] if field == "input" else [b"echo", word]
        command: list[str | bytes] = [SCRIPT, *before, "--json", "--", *words]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=True)
        document = json.loads(done.stdout)
        done.stdout.decode("utf-8")
        assert b"\\ud" not in done.stdout
        encoded = document[f"{field}_b64"]
        if field == "input":
            assert document[field] == "echo caf\ufffd"
            assert base64.b64decode(encoded) == b"echo caf\xe9"
        else:
            assert document[field] == ["echo", "caf\ufffd"]
            assert [base64.b64decode(each) for each in encoded] == [b"echo", word]


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("before", [["score", "--budget", "4"], ["grammar", "parse"]])
def test_arguments_that_are_not_utf8_are_valid_unicode(before: list[str]) -> None:
    command: list[str | bytes] = [SCRIPT, *before, "--json", "--", b"echo caf\xe9"]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    assert b"\\ud" not in done.stdout
    document = json.loads(done.stdout)
    assert document["input_b64"] == base64.b64encode(b"echo caf\xe9").decode()
    assert "caf\ufffd" in json.dumps(document["input_args"] if before[0] == "score"
                                     else document["segments"], ensure_ascii=False)  # fmt: skip
