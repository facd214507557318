"""Commands work the same in every locale, and escape characters that its encoding lacks."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.nightly import by_day

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


@pytest.mark.parametrize("locale", by_day([*LOCALES], 2))
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


WORD = b"caf\xe9"
"""A word that is not UTF-8."""

JSON: dict[str, tuple[list[str | bytes], dict[str, Any]]] = {
    "run": (["run", "--json", b"echo " + WORD], {"input": b"echo " + WORD}),
    "score": (
        ["score", "--json", "--budget", "4", b"echo " + WORD],
        {"input": b"echo " + WORD, "input_args": [b"echo", WORD]},
    ),
    "a score without a grammar": (
        ["score", "--json", "--budget", "4", b"nosuch-" + WORD + b" a"],
        {
            "input_args": [b"nosuch-" + WORD, b"a"],
            "reading": [b"nosuch-" + WORD + b" has no grammar: each word is one argument"],
        },
    ),
    "predict": (["predict", "--json", b"echo " + WORD], {"input": b"echo " + WORD}),
    "grammar parse": (["grammar", "parse", "--json", b"echo " + WORD], {"input": b"echo " + WORD}),
    "preview": (["preview", "--json", "--", "echo", WORD], {"command": [b"echo", WORD]}),
    "generate": (
        ["generate", "--json", "--count", "1", "--workers", "1", "--command", "true", WORD],
        {"directory": WORD},
    ),
}
"""Commands, and members of their JSON output whose bytes are not UTF-8."""


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("name", by_day([*JSON], 3))
def test_json_of_what_is_not_utf8_is_valid_with_the_bytes_beside(tmp_path: Path, name: str) -> None:
    words, expected = JSON[name]
    place = tmp_path / os.fsdecode(WORD)
    place.mkdir()
    done = subprocess.run(
        [SCRIPT, *words], capture_output=True, stdin=subprocess.DEVNULL, check=False, cwd=place
    )
    document = json.loads(done.stdout.decode("utf-8", "strict"))
    json.dumps(document, ensure_ascii=False).encode("utf-8", "strict")
    for member, content in expected.items():
        several = isinstance(content, list)
        every = content if several else [content]
        shown = [each.decode("utf-8", "replace") for each in every]
        assert document[member] == (shown if several else shown[0])
        encoded = document[f"{member}_b64"]
        assert list(map(base64.b64decode, encoded if several else [encoded])) == every
    if name == "preview":
        assert base64.b64decode(document["cwd_b64"]) == os.fsencode(place)


@pytest.mark.usefixtures("system")
def test_json_without_such_a_text_has_no_bytes_beside() -> None:
    document = json.loads(ran("POSIX", "run", "--json", "echo dž").stdout)
    assert [name for name in document if name.endswith("_b64")] == ["output_b64"]
