"""The subcommands over a fake sandbox: their output and exit status."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import typer
from typer.testing import CliRunner, Result

from shioenv.cli import printing
from shioenv.cli.commands import application
from shioenv.cli.main import app
from shioenv.cli.subcommands import KNOWN
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import ScriptedRunner, State
from shioenv.errors import SandboxError, StartDirectoryError, UnknownSystemError
from shioenv.sandbox.base import LIMITS, Limits
from shioenv_serve.cli.replaying import play_visit
from shioenv_serve.ssh.visitor_channel import ChannelRecording
from shioenv_serve.visit_log import read_visits
from support.cli_reference import commands, plain


class Sandbox(ScriptedRunner):
    """Answers from a function; provides as much of a system as the subcommands need."""

    system: Any = SimpleNamespace(
        name="debian-12",
        packages={},
        host_clock=False,
        declaration=SimpleNamespace(start_directory="/home/ubuntu"),
    )

    def state(self, cwd: str | None = None) -> State:
        return State(cwd=cwd or "/home/ubuntu")

    def execute(
        self, shell_input: str, state: State | None = None, *, tty: bool = False, **how: Any
    ) -> Behavior:
        return super().execute(shell_input, state, **how)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def greeting(text: str) -> Behavior:
    if text == "bytes":
        return Behavior(0, b"a\xff\n")
    if text.startswith("touch"):
        return Behavior(
            0,
            b"",
            ContextPatch(
                (
                    (
                        "a",
                        "/fs/x",
                        {"perms": "-rw-r--r--", "size": 0, "owner": "root", "group": "root"},
                    ),
                )
            ),
        )
    return Behavior(3, b"hello " + text.encode() + b"\n", timed_out=text == "sleep")


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    found = Sandbox(greeting)
    opened: list[Any] = []

    def open_sandbox(system: str | None = None, limits: object = None) -> Sandbox:
        opened.append((system, limits))
        if system == "debain":
            raise UnknownSystemError("unknown system 'debain'", hint="did you mean debian-12?")
        return found

    monkeypatch.setattr("shioenv.behavior.observe.open_sandbox", open_sandbox)
    return found


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_run_prints_the_output_as_it_is_and_the_facts_apart(sandbox: Sandbox) -> None:
    result = call("run", "x")
    assert (result.exit_code, result.stdout_bytes) == (0, b"hello x\n")
    assert result.stderr == "exit code 3\n"


def test_run_shows_what_changed(sandbox: Sandbox) -> None:
    result = call("run", "touch x")
    assert "  added   x  -rw-r--r-- root root 0\n" in result.stderr


@pytest.mark.parametrize("words", [["--again"], ["--speed", "4"], ["--pause", "1"]])
def test_replaying_without_a_session_takes_no_options_of_one(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "log.jsonl").write_text("")
    assert call("serve", "replay", str(tmp_path)).exit_code == 0
    result = call("serve", "replay", str(tmp_path), *words)
    assert (result.exit_code, result.exception is None) == (2, False)
    assert "need a session" in str(result.exception) + result.stderr


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "patch",
    ['[["a", "/fs/x", {"perms": 5}]]', '[["a", "/fs/x", {"perms": "a", "owner": "b"}]]',
     '[["a", "/fs/x", {"perms": "a", "owner": "b", "group": "c", "target": 7}]]',
     '[["a", 7, {}]]', '"x"', DEEP, "[" * 95 + "]" * 95],
)  # fmt: skip
def test_a_crafted_patch_in_a_log_or_a_recording_ends_no_replay(tmp_path: Path, patch: str) -> None:
    (tmp_path / "recordings").mkdir()
    marker = f'{{"context_patch": {patch}}}'
    (tmp_path / "recordings" / "b.cast").write_text(json.dumps([0, "m", marker]) + "\n")
    fields = '"eventid": "shioenv.command", "input": "x"'
    lines = [f'{{"session": "a", {fields}, "context_patch": {patch}}}']
    lines += [f'{{"session": "a", {fields}}}', f'{{"session": "b", {fields}}}']
    lines += ['{"session": "b", "eventid": "cowrie.log.closed", "cast": "b.cast"}']
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    for session in "ab":
        result = call("serve", "replay", str(tmp_path), session)
        assert (result.exit_code, result.exception) == (0, None), result.exc_info
        assert call("serve", "replay", str(tmp_path), session, "--json").exit_code == 0


def test_a_replay_shows_changes_above_the_prompt_at_which_the_next_line_is_typed(
    tmp_path: Path,
) -> None:
    (tmp_path / "recordings").mkdir()
    made = json.dumps({"context_patch": [["a", "/fs/tmp~1.x", {"perms": "drwxr-xr-x"}]]})
    events = [(0, "o", "~# mkdir .x\r\n"), (1, "o", "~# "), (2, "m", made), (3, "o", "ls\r\n")]
    text = "".join(f"{json.dumps(event)}\n" for event in events)
    (tmp_path / "recordings" / "b.cast").write_text(text)
    event = {"session": "b", "eventid": "cowrie.log.closed", "cast": "b.cast"}
    (tmp_path / "log.jsonl").write_text(json.dumps(event))
    played = play_visit(read_visits(tmp_path)["b"], 1, 0, plain=False).parts
    shown = b"".join(part for part in played if isinstance(part, bytes)).decode()
    plain = re.sub(r"~# \r\x1b\[2K|\x1b\[[0-9;?]*[a-z]", "", shown)
    assert plain.splitlines()[:3] == ["~# mkdir .x", "  added   /tmp/.x  drwxr-xr-x", "~# ls"]


def log_channel(directory: Path, command: str | None, output: bytes, **fields: Any) -> None:
    """Log a session `b` with one recorded channel."""
    with ChannelRecording(directory / "recordings", "b-1", command, (24, 80)) as made:
        made.shown(output)
        made.did(command or "", Behavior(0, output, greeting("touch x").patch))
    events: list[dict[str, Any]] = [
        {"eventid": "shioenv.command", "input": command or "exit", "exit_code": 0, **fields},
        {"eventid": "cowrie.log.closed", "cast": "b-1.cast"},
    ]
    with (directory / "log.jsonl").open("a") as log:
        for event in events:
            log.write(json.dumps({"session": "b", "channel": 1, **event}) + "\n")


@pytest.mark.parametrize(("command", "first"), [("id\x1b[6n -u", "$ id\\x1b[6n -u"), (None, "0")])
def test_a_replay_shows_the_command_of_a_channel_without_a_shell(
    tmp_path: Path, command: str | None, first: str
) -> None:
    log_channel(tmp_path, command, b"0\n")
    shown = call("serve", "replay", str(tmp_path), "b", "--pause", "0").stdout
    assert shown.splitlines()[0] == first


def test_a_replay_into_a_pipe_is_plain_text_without_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    log_channel(tmp_path, None, b"\x1b[?2004h\x1b[31m~# mad\x08\x1b[Kkdir x\x07\r\n~# ")
    cast = tmp_path / "recordings" / "b-1.cast"
    cast.write_text(cast.read_text() + '[9, "o", "ls\\r\\n"]\n')
    lines = call("serve", "replay", str(tmp_path), "b").stdout.splitlines()
    assert lines[0] == "~# makdir x"
    assert lines[1].startswith("  added   /x")
    assert lines[2] == "~# ls"
    assert sum(slept) == 0


def test_run_json_is_one_object_with_the_fixed_names(sandbox: Sandbox) -> None:
    result = call("run", "--json", "touch x")
    document = json.loads(result.stdout)
    assert document["context_patch"][0][:2] == ["a", "/fs/x"]
    for name in ["input", "exit_code", "output", "context_patch", "timed_out", "output_truncated"]:
        assert name in document
    assert document["input"] == "touch x"


def test_run_json_keeps_bytes_that_are_no_text(sandbox: Sandbox) -> None:
    document = json.loads(call("run", "--json", "bytes").stdout)
    assert (document["output"], document["output_b64"]) == ("a\N{REPLACEMENT CHARACTER}\n", "Yf8K")


def test_run_hands_on_the_start_directory(sandbox: Sandbox) -> None:
    document = json.loads(call("run", "--json", "x", "--cwd", "/tmp").stdout)
    assert [(asked.text, asked.state) for asked in sandbox.asked] == [("x", State(cwd="/tmp"))]
    assert document["cwd"] == "/tmp"


def test_an_error_is_a_message_a_code_and_a_hint(sandbox: Sandbox) -> None:
    result = call("run", "x", "--system", "debain")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: unknown system 'debain' (SHIO-S02)\n  hint: did you mean debian-12?\n"
    )
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "status"),
    [(SandboxError("broke"), 1), (StartDirectoryError("none"), 2), (KeyboardInterrupt(), 130)],
)
def test_errors_end_with_their_own_status(
    sandbox: Sandbox, error: BaseException, status: int
) -> None:
    def fail(text: str) -> Behavior:
        raise error

    sandbox._answer = fail
    result = call("run", "x")
    assert result.exit_code == status
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "x", "--timeout", "0"),
        ("run", "x", "--timeout", "soon"),
        ("nonsense",),
        ("score", "x", "--budget", "0"),
    ],
)
def test_wrong_usage_ends_with_2(sandbox: Sandbox, words: tuple[str, ...]) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "ls", "-la"), "An input is one argument: shioenv run 'ls -la'"),
        (("score", "ls", "my docs"), "An input is one argument: shioenv score 'ls my docs'"),
        (("run", "ls -l", "--tyt"), ""),
        (("run", "--tyt", "ls"), ""),
    ],
)
def test_an_input_in_pieces_is_shown_whole(
    sandbox: Sandbox, words: tuple[str, ...], told: str
) -> None:
    result = call(*words)
    assert result.exit_code == 2
    shown = " ".join(result.stderr.replace("│", "").split())
    assert told in shown
    assert bool(told) == ("An input is" in shown)


def test_score_json_has_the_fixed_names_and_every_sub_input(sandbox: Sandbox) -> None:
    sandbox._answer = lambda text: Behavior(0, b"long" if " -l" in text else b"short")
    document = json.loads(call("score", "--json", "ls -l -a").stdout)
    for name in [
        "irreducibility",
        "irreducibility_strict",
        "exact",
        "n_args",
        "n_executions",
        "noise_threshold",
        "arguments",
    ]:
        assert name in document
    assert document["n_args"] == 2
    assert document["exact"] is True
    assert document["irreducibility"] == 0.5
    effects = {one["argument"]: one["leave_one_out"] for one in document["arguments"]}
    assert effects == {"-l": True, "-a": False}
    assert [one["input"] for one in document["segments"][0]["contrasts"]] == ["ls -l", "ls -a"]


def test_score_says_which_argument_changes_nothing(sandbox: Sandbox) -> None:
    sandbox._answer = lambda text: Behavior(0, b"long" if " -l" in text else b"short")
    shown = call("score", "ls -l -a").stdout
    assert "irreducibility  0.500 (exact)" in shown
    lines = {line.split()[0]: line for line in shown.splitlines() if line.startswith("-")}
    assert "output differs" in lines["-l"]
    assert "nothing changes" in lines["-a"]


def test_score_says_why_an_input_is_volatile(sandbox: Sandbox) -> None:
    sandbox._answer = lambda text: Behavior(124, b"", timed_out=True, volatile=True)
    assert "volatile: it times out" in call("score", "sleep 9").stdout
    counted = itertools.count()
    sandbox._answer = lambda text: Behavior(0, f"{'x' * next(counted)}".encode())
    assert "volatile: its runs differ" in call("score", "mktemp -u").stdout


def test_score_of_an_input_without_arguments_is_undefined(sandbox: Sandbox) -> None:
    document = json.loads(call("score", "--json", "true").stdout)
    assert document["irreducibility"] is None
    assert "undefined" in call("score", "true").stdout


def test_a_command_without_a_grammar_is_split_into_words(sandbox: Sandbox) -> None:
    document = json.loads(call("score", "--json", "nosuchtool -ab 'c d'").stdout)
    assert document["input_args"] == ["nosuchtool", "-ab", "'c d'"]


@pytest.fixture
def broken_grammar(tmp_path: Any) -> str:
    path = tmp_path / "broken.grammar"
    path.write_text("command nonsense\n")
    return str(path)


def test_grammar_check_names_faults_with_their_place_and_fails(broken_grammar: str) -> None:
    result = call("grammar", "check", broken_grammar)
    assert result.exit_code == 1
    assert "broken.grammar:1:" in result.stdout
    document = json.loads(call("grammar", "check", "--json", broken_grammar).stdout)
    assert document["faults"][0]["code"].startswith("SHIO-G1")


def test_grammar_show_prints_the_file_and_what_it_means() -> None:
    assert "ls" in call("grammar", "show", "ls").stdout
    document = json.loads(call("grammar", "show", "ls", "--json").stdout)
    assert document["command"] == "ls"
    assert ["-l"] in [option["names"] for option in document["options"]]


def test_an_unknown_grammar_names_the_nearest() -> None:
    result = call("grammar", "show", "gerp")
    assert result.exit_code == 2
    assert "did you mean grep?" in result.stderr


@pytest.mark.parametrize(
    ("words", "limits"), [(("run",), Limits()), (("score",), Limits()), (("generate",), LIMITS)]
)
def test_help_names_the_wall_time_that_holds(words: tuple[str, ...], limits: Limits) -> None:
    shown = " ".join(CliRunner().invoke(app, [*words, "--help"]).output.replace("│", "").split())
    assert f"Time limit of an execution (default: {limits.wall_seconds:g};" in shown


def test_the_package_can_be_run_by_its_name() -> None:
    command = [sys.executable, "-m", "shioenv"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("shioenv ")
    wrong = subprocess.run([*command, "sytem"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "Usage: shioenv " in wrong.stderr


def test_help_shows_what_stands_in_brackets() -> None:
    named = 0
    for path, command in commands("shioenv", typer.main.get_command(app)):
        written = re.findall(r"shioenv\[\w+\]", plain(command.help or ""))
        if written:
            result = CliRunner().invoke(app, [*path.split()[1:], "--help"])
            shown = " ".join(result.output.replace("│", "").split())
            assert all(extra in shown for extra in written), path
            named += len(written)
    assert named >= 5


def test_the_version_is_printed() -> None:
    result = call("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("shioenv ")


def test_systems_that_are_declared_are_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path))
    listed = {one["name"]: one for one in json.loads(call("system", "list", "--json").stdout)}
    assert (listed["debian-12"]["built"], listed["debian-12"]["digest"]) == (False, None)


def test_a_system_that_is_not_built_is_exit_3_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path))
    for words in (["run", "ls"], ["system", "show"], ["sample"], ["generate", str(tmp_path / "d")]):
        result = call(*words)
        assert result.exit_code == 3, words
        assert "build it: shioenv system build debian-12" in result.stderr


@pytest.mark.parametrize("subcommand", ["verify", "stats", "show"])
def test_a_directory_without_a_dataset_is_an_error(subcommand: str, tmp_path: Any) -> None:
    result = call("dataset", subcommand, str(tmp_path))
    assert result.exit_code == 2
    assert "SHIO-D06" in result.stderr


def test_what_looks_like_markup_is_printed_as_it_is(tmp_path: Path) -> None:
    inputs = ["[/opt/x] foo", "[sudo] a", "[red]b c", ":bug: d"]
    lines = [json.dumps({"input": one, "output": "", "exit_code": 0}) + "\n" for one in inputs]
    (tmp_path / "rows.ndjson").write_text("".join(lines))
    source, directory = str(tmp_path / "rows.ndjson"), str(tmp_path / "dataset")
    call("dataset", "import", source, "--out", directory, "--format", "released")
    printed = call("dataset", "stats", directory).stdout
    for one in inputs:
        assert re.search(rf"(?m)^{re.escape(one.split()[0])} +1 ", printed)
    printed = call("dataset", "leakage", directory, directory).stdout
    for one in inputs:
        assert f"exact     1.00  {one}\n" in printed


def test_a_number_stands_with_its_noun() -> None:
    said = [printing.counted(number, "grammar") for number in (0, 1, 2_000)]
    assert said == ["0 grammars", "1 grammar", "2,000 grammars"]


@pytest.mark.parametrize("words", [["predict"], ["dataset", "split"], ["doctor"]])
def test_a_subcommand_built_alone_says_the_same(words: list[str]) -> None:
    one = application(words[0])
    assert len(one.registered_groups) == 1
    runner = CliRunner()
    said = runner.invoke(one, [*words, "--help"], prog_name="shioenv")
    assert said.exit_code == 0
    assert said.output == runner.invoke(app, [*words, "--help"], prog_name="shioenv").output


def test_a_word_that_names_no_subcommand_leaves_all() -> None:
    offered = [commands_of(application(word)) for word in ("", "--help", "dotcor")]
    assert offered == [[path for path in KNOWN if "." not in path]] * 3


def commands_of(one: typer.Typer) -> list[str]:
    """Names of the subcommands of an app."""
    group = typer.main.get_command(one)
    return list(group.commands)  # type: ignore[attr-defined]


def test_one_grammar_is_checked_as_one() -> None:
    result = CliRunner().invoke(app, ["grammar", "check", "ls"])
    assert result.stdout == "1 grammar, no faults\n"


def test_no_terminal_obeys_what_an_input_wrote() -> None:
    assert printing.printable("plain ünï\tcode") == "plain ünï\tcode"
    assert printing.printable("\x1b]0;title\x07\r\n\x9b") == r"\x1b]0;title\x07\r\n\x9b"
    assert "\x1b" not in call("run", "x", "--system", "\x1b[2J").stderr


@pytest.mark.usefixtures("system")
def test_a_sampler_that_nobody_knows_is_what_is_told() -> None:
    result = call("sample", "--sampler", "gsc", "--count", "1")
    assert result.exit_code == 2
    assert "unknown sampler 'gsc'" in result.stderr
    assert "did you mean gcs?" in result.stderr


def test_a_list_is_read_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list").write_text("ls -a\nls -b\n")

    def piped(content: bytes, *words: str) -> Result:
        kept = os.dup(0)  # what is saved of a list replaces it
        try:
            return CliRunner().invoke(app, words, input=content)
        finally:
            os.dup2(kept, 0)
            os.close(kept)

    leaking = piped(b"ls -a\nls -c\n", "dataset", "leakage", "list", "-", "--json")
    assert json.loads(leaking.stdout)["test"] == 2
    assert leaking.exit_code == 1
    for words in (
        ["dataset", "import", "-", "--out", "new"],
        ["suite", "adapt", "-", "--out", "new"],
    ):
        wrong = piped("ls\n".encode("utf-16"), *words)
        assert (wrong.exit_code, "error: /dev/stdin" in wrong.stderr) == (1, True)
    command = [sys.executable, "-m", "shioenv", "predict", "--history", "-", "pwd"]
    assert subprocess.run(command, input=b"cd /tmp\n", capture_output=True).stdout == b"/tmp\n"


def test_a_list_of_inputs_may_begin_with_a_mark_of_the_byte_order(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("ls -la\n", encoding="utf-8")
    (tmp_path / "marked").write_text("\ufeffls -la\n", encoding="utf-8")
    plain, marked = (
        CliRunner().invoke(app, ["grammar", "usage", str(tmp_path / name), "--json"])
        for name in ("plain", "marked")
    )
    assert (marked.exit_code, marked.stdout) == (0, plain.stdout)


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("grammar usage - <&-", "standard input is closed"),
        ("grammar parse --file - <&-", "standard input is closed"),
        ("dataset leakage - - < /dev/null", "standard input (-) is given for both sets"),
    ],
)
def test_standard_input_that_cannot_be_read_is_an_error(line: str, said: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m shioenv {line}', sys.executable], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")


@pytest.mark.parametrize(
    "words",
    [
        "dataset stats nosuch", "dataset leakage nosuch nosuch", "tasks show nosuch",
        "suite stats nosuch", "suite record nosuch --out x", "suite adapt nosuch --out x",
        "evaluate --suite nosuch --predictor trivial", "model show nosuch",
        "predict --model nosuch ls", "serve replay nosuch", "sample --policy nosuch.json",
        "sample --grammars nosuch", "system build ./nosuch.toml", "shell --model nosuch",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("system")
def test_a_file_that_is_not_there_is_a_wrong_request(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2, result.stderr
    assert "nosuch" in result.stderr
    assert not list(tmp_path.iterdir())
