"""Generated scripts are divided into commands where Bash divides them.

An interactive Bash prompts for each line that it reads, with PS1 before a new command and with PS2
in the middle of one.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from random import Random

import pytest

from shioenv.bash.complete import ScriptReader

PROMPTS = {"PS1": "@new@", "PS2": "@more@"}


def divided_by_bash(script: str) -> list[bool]:
    """Return for each line that Bash reads, and for the end, whether a command has begun before it.

    At the end Bash may look for a line twice.
    """
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "--noediting", "-i", "+H"],
        input=script.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={"PATH": os.defpath, "HISTFILE": "/dev/null", **PROMPTS}, cwd="/",
        start_new_session=True,  # without a terminal to take
        check=False,
    )  # fmt: skip
    return [found == b"@more@" for found in re.findall(rb"@new@|@more@", done.stderr)]


def divided_by_reader(script: str) -> tuple[list[bool], list[str]]:
    """Return the same from `ScriptReader`, and its commands."""
    begun: list[bool] = []
    lines = iter(script.splitlines(keepends=True))

    def line(has_begun: bool) -> str:
        begun.append(has_begun)
        return next(lines, "")

    commands = []
    reader = ScriptReader()
    for command in reader.commands(line):
        commands.append(command)
        reader.refused = False  # Bash goes on at a prompt
    return begun, commands


class Writer:
    """Generates random commands without effects. Bodies of here-documents follow the next
    newline."""

    def __init__(self, random: Random, depth: int = 0) -> None:
        self.random, self.depth = random, depth
        self.text = ""
        self._documents: list[str] = []

    def newline(self, before: str = "") -> None:
        """End a line, and write the pending here-documents."""
        comment = self.random.choice(["", "", "", " # it's a \" comment", " # ends in \\"])
        self.text += f"{before}{comment}\n" + "".join(self._documents)
        self._documents = []

    def gap(self) -> None:
        """Generate a separator at which a list of commands may continue."""
        if self.random.random() < 0.5:
            self.newline()
            if self.random.random() < 0.2:
                self.newline()
        else:
            self.text += " "

    def end(self) -> None:
        """End a command inside of another one."""
        if self.random.random() < 0.6:
            self.newline()
        else:
            self.text += "; "

    def words(self) -> None:
        for _ in range(self.random.randrange(4)):
            self.text += self.random.choice([" ", " ", " \\\n"])
            for _ in range(self.random.choice([1, 1, 2])):
                self.text += self.word()

    def word(self) -> str:
        """Return one part of a word."""
        nested = self.depth < 2 and not self._documents  # or whose line ends?
        choice = self.random.randrange(14 if nested else 10)
        return (
            "plain", "a\\\nb", "'one\ntwo # \\'", '"one\n$x \\" \\\\ `:`\ntwo"', "$'a\\'\nb'",
            "\\'", "${x:-'a\nb'}", "$((1 +\n2))", "x#y", '"$(: \')\')"',
        )[choice] if choice < 10 else self.nested(choice)  # fmt: skip

    def nested(self, choice: int) -> str:
        """Return a substitution with commands."""
        inner = Writer(self.random, self.depth + 1)
        inner.commands(1)
        if choice == 10:
            return "`:\n:`"
        if choice == 11:
            return f'"$( {inner.text})"'
        if choice == 12:
            return f"<( {inner.text})"
        return f"$( {inner.text})"

    def redirection(self) -> None:
        """Return a here-document, a here-string, or a file."""
        word = self.random.choice(["END", "'END'", '"E D"', "-END", "- 'END'", "E\\ND"])
        if self.random.random() < 0.3:
            self.text += self.random.choice([" <<< 'a\nb'", " > /dev/null", " 2>&1"])
            return
        name = re.sub(r"['\"\\]|^-\s*", "", word)
        lines = self.random.choices(
            [
                "body",
                "",
                "fi )",
                "it's",
                '"',
                "$x $((1))",
                "END x",
                " END",
                "a\\\\",
                "# no comment",
            ],
            k=self.random.randrange(4),
        )
        tab = self.random.choice(["", "\t"]) if word.startswith("-") else ""
        self.text += f" <<{word}"
        self._documents.append("".join(f"{tab}{line}\n" for line in [*lines, name]))

    def simple(self) -> None:
        self.text += ":"
        self.words()
        for _ in range(self.random.choice([0, 0, 1, 2])):
            self.redirection()

    def command(self) -> None:
        """Return a simple or a compound command."""
        self.depth += 1
        kinds = [self.simple, self.simple, self.loop, self.test, self.case, self.group, self.array]
        kinds += [self.function, self.condition]
        kind = self.random.choice(kinds) if self.depth < 4 else self.simple
        kind()
        self.depth -= 1

    def list(self) -> None:
        """Return commands with operators between them."""
        self.command()
        while self.random.random() < 0.25:
            self.text += self.random.choice([" |", " &&", " ||"])
            self.gap()
            self.command()

    def commands(self, most: int = 2) -> None:
        """Return complete commands, each with its end."""
        for _ in range(self.random.randrange(most) + 1):
            self.list()
            self.end()
        if not self.text.endswith("\n"):
            self.newline(":")

    def loop(self) -> None:
        head = self.random.choice(["while false;", "until :;", "for i in;", "for ((; 0;\n))"])
        self.text += f"{head} do"
        self.gap()
        self.commands()
        self.text += "done"
        if self.random.random() < 0.3:
            self.redirection()

    def test(self) -> None:
        self.text += "if"
        self.gap()
        self.commands()
        self.text += "then"
        self.gap()
        self.commands()
        if self.random.random() < 0.5:
            self.text += "else"
            self.gap()
            self.commands()
        self.text += "fi"

    def case(self) -> None:
        self.text += "case x in"
        self.gap()
        for pattern in self.random.choices(["(a|b)", "x)", "*)"], k=self.random.randrange(3)):
            self.text += pattern
            self.gap()
            self.commands()
            self.text += self.random.choice([";;", ";&"])
            self.newline()
        self.text += "esac"

    def group(self) -> None:
        first, last = self.random.choice([("{", "}"), ("(", ")")])
        self.text += first
        self.gap()
        self.commands()
        self.text += last

    def array(self) -> None:
        self.text += "a=(1"
        if not self._documents:  # `Reader` does not find their bodies there
            self.newline()
        self.text += " '2\n3' )"

    def function(self) -> None:
        self.text += self.random.choice(["f()", "function f", "f ()"])
        self.gap()
        self.text += "{"
        self.gap()
        self.commands()
        self.text += "}"

    def condition(self) -> None:
        line_end = " " if self._documents else "\n"  # as in arrays
        self.text += self.random.choice(
            [f"[[ a && (b ||{line_end}c) ]]", "(( 1 <<\n2 ))", "! :", "[[ a =~ ( ) ]]"]
        )


@pytest.mark.parametrize("seed", range(40))
def test_a_script_is_divided_as_bash_divides_it(seed: int) -> None:
    random = Random(seed)
    writer = Writer(random)
    for _ in range(random.randrange(1, 5)):
        writer.list()
        writer.newline(random.choice(["", " &", ";"]) if random.random() < 0.2 else "")
    lines = writer.text.splitlines(keepends=True)
    begun, commands = divided_by_reader(writer.text)
    assert begun == divided_by_bash(writer.text)[: len(begun)], writer.text
    starts = [place for place, has_begun in enumerate(begun) if not has_begun]
    read = ["".join(lines[start:end]) for start, end in itertools.pairwise(starts)]
    assert set(commands) <= {*read, *(text.removesuffix("\n") for text in read)}
    most = random.randrange(len(lines) + 1)
    cut = "".join(lines[:most])
    assert divided_by_reader(cut)[0][:most] == divided_by_bash(cut)[:most], cut
