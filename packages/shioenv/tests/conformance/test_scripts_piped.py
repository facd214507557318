"""A script piped to a shell: its complete commands behave as with `bash < FILE`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shioenv.bash.complete import ScriptReader
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.live.resident import ResidentShell
from shioenv.system.store import System
from support.needs import needs

SCRIPTS = [
    "cat <<END\nhome $HOME\nEND\necho behind\n",
    "cat > list <<'END'\nrm -r documents\n$HOME\nEND\ncat list; ls -d documents\n",
    "cat <<-A <<B\n\tone\n\tA\ntwo\nB\necho behind\n",
    "cat <<AB | tr a-z A-Z\nx\nA\\\nB\necho behind\n",
    "cat <<''\nto an empty line\n\necho behind\n",
    "if cat <<A; then\nbody\nA\necho yes\nfi\n",
    "x=$(cat <<A\nwithin\nA\n)\necho \"$x\"\n",
    "for i in 1 2\ndo\n  echo $i\ndone\n",
    "while read -r line\ndo echo \"<$line>\"\ndone <<A\none\ntwo\nA\n",
    "until ((++n > 2))\ndo\necho $n\ndone\n",
    "greet()\n{\n  echo \"hello $1\"\n}\ngreet you\n",
    "if false\nthen echo a\nelif true\nthen\n  echo b\nelse echo c\nfi\n",
    "case b in\na) echo one ;;\nb)\n  echo two\n  ;;\nesac\n",
    "echo \"a\nb\" 'c\n\\\nd'\necho $'e\n\\'f'\n",
    "echo one \\\ntwo\necho a;\\\necho b\n",
    "# a comment with a \" and a ' \\\necho here # another '\necho there\n",
    "echo a |\n\n# between\ncat &&\necho b\n",
    "x=`\necho back\n`\necho $x ${x:-\n} $((1 +\n2)) $((1<<2))\n",
    "a=(1\n2 # not '\n3)\necho ${a[2]}\n",
    "[[ a &&\nb ]]\necho $?\n! \\\ntrue\necho $?\n",
    "echo before\nexit 3\necho never\n",
    "echo before\n)\necho never\n",
    "echo before\nif true; then\n}\nfi\necho never\n",
    "echo before\necho $(done)\necho never\n",
    "f() {\necho \"$(if)\"\n}\necho never\n",
    "echo before\necho never; echo >\necho never\n",
    "echo 'never\nclosed\n",
    "for i in 1; do\necho never\n",
    "cat <<END\nno end",
    "false\n\n# the status stays\n",
    "echo a\0b\nec\0ho c\n",
    "echo no newline",
    "echo backslash \\",
    "",
]  # fmt: skip


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    with open_sandbox(system) as opened:
        yield opened


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_commands_of_a_script_do_what_bash_does(runner: SandboxRunner, script: str) -> None:
    state = replace(runner.state(), stdin=script.encode())
    truth = runner.execute("bash", state, separate=True)
    output, status = b"", 0
    lines = iter(script.splitlines(keepends=True))
    with ResidentShell(runner, runner.state().cwd) as shell:
        reader = ScriptReader()
        for command in reader.commands(lambda has_begun: next(lines, "")):
            behavior = shell.run(command)
            output += b"".join(
                line
                for line in behavior.output.splitlines(keepends=True)
                if not line.startswith(b"bash: ")
            )
            status = reader.status(behavior.exit_code)
            if shell.ended:
                break
    assert (output, status) == (truth.stdout, truth.exit_code)


def test_no_line_is_read_before_the_commands_above_it_were_taken() -> None:
    given: list[str] = []
    lines = iter("echo a\nfor i in 1\ndo echo\ndone\necho b\n".splitlines(keepends=True))

    def line(has_begun: bool) -> str:
        given.append(f"{has_begun:d}")
        return next(lines, "")

    read = [("".join(given), command) for command in ScriptReader().commands(line)]
    assert read == [("0", "echo a"), ("0011", "for i in 1\ndo echo\ndone"), ("00110", "echo b")]


def test_a_long_document_is_read_in_one_pass() -> None:
    body = "a line of the document\n" * 20_000
    script = f"cat <<END\n{body}END\necho behind\n"
    lines = iter(script.splitlines(keepends=True))
    assert [*ScriptReader().commands(lambda has_begun: next(lines, ""))] == [
        f"cat <<END\n{body}END",
        "echo behind",
    ]


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--model", "default"), marks=needs("shioenv-model"))]
)
def test_the_command_line_runs_complete_commands(options: tuple[str, ...]) -> None:
    done = piped(
        "for i in 1 2\ndo echo $i\ndone\ncat > made <<END\nrm -r documents\nEND\n"
        "cat made\necho $HO\0ME",
        *options,
    )
    assert (done.stdout, done.returncode) == ("1\n2\nrm -r documents\n/root\n", 0)


def test_a_line_that_is_too_long_is_an_error_of_its_command() -> None:
    done = piped(f"echo {'x' * 200_000}\necho next\n")
    assert done.stdout == "next\n"
    assert "200005 bytes" in done.stderr


def piped(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "shioenv", "shell", *options]
    return subprocess.run(words, input=script, capture_output=True, text=True, check=False)
