"""Random small Bash programs: every construct that combines inputs."""

from __future__ import annotations

from random import Random

FILES = ("a.txt", "b.txt", "README.md", "documents/notes.txt", "data/ids.txt", "d/e", "missing")
DIRECTORIES = ("d", "documents", "data", "/tmp", "new", "..", "nowhere")
NAMES = ("x", "y", "z", "f")
TEXTS = ("one", "two words", "a*b", "3", "", "10", "-", "x=1", "a:b", "it's", "#", "~", "é")
OPERATORS = ("; ", "; ", " && ", " || ", "\n")
FILTERS = (
    "cat", "wc", "sort -r", "head -2", "tail -n 1", "tr a-z A-Z", "grep -n o", "cut -c1-3", "rev",
    "uniq -c", "nl", "md5sum", "sed s/o/0/", "xargs", "while read -r x z; do echo \"<$x>\"; done",
    "{ read x; echo $x; cat; }", "(read -r x y; wc -c)", "od -c", "sed 1q", "xargs -n 1 echo",
)  # fmt: skip


class Programs:
    """Generates programs; the same random numbers give the same ones."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def program(self, depth: int = 2) -> str:
        """Return a list of one to four commands."""
        parts = [self._pipeline(depth)]
        for _ in range(self._random.randint(0, 3)):
            parts += [self._pick(OPERATORS), self._pipeline(depth)]
        return "".join(parts)

    def _pipeline(self, depth: int) -> str:
        """Return a pipeline with filters alone after the first pipe: other programs end in any
        order.
        """
        text = ("! " if self._chance(0.05) else "") + self._command(depth)
        while self._chance(0.25):
            text += self._pick((" | ", " | ", " |& ")) + self._pick(FILTERS)
        return text

    def _pick(self, choices: tuple[str, ...]) -> str:
        return choices[int(self._random.random() * len(choices))]

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _command(self, depth: int) -> str:
        compound = depth and self._chance(0.3)
        text = self._compound(depth - 1) if compound else self._simple(depth)
        if self._chance(0.3):
            text += " " + self._redirect(depth)
        return text

    def _compound(self, depth: int) -> str:
        inner = self.program(depth)
        kind = int(self._random.random() * 8)
        if kind == 0:
            return "{ " + inner + "; }"
        if kind == 1:
            return "( " + inner + " )"
        if kind == 2:
            words = " ".join(self._word(depth) for _ in range(self._random.randint(0, 3)))
            return f"for {self._pick(NAMES)} in {words}; do {inner}; done"
        if kind == 3:
            return f"if {self._command(depth)}; then {inner}; else {self._simple(depth)}; fi"
        if kind == 4:
            return f"while read -r {self._pick(NAMES)} y; do {inner}; done < {self._pick(FILES)}"
        if kind == 5:
            pattern = self._pick(("*", "one", "[0-9]*", "?", "a*|x", "'a*'"))
            return f"case {self._word(depth)} in {pattern}) {inner};; *) echo else;; esac"
        if kind == 6:
            return f"g{depth}() {{ {inner}; }}; g{depth} {self._word(depth)} two"
        bound = self._random.randint(1, 3)
        i = f"i{depth}"
        return f"{i}=0; while [ ${i} -lt {bound} ]; do {i}=$(({i}+1)); {inner}; done"

    def _simple(self, depth: int) -> str:
        words, file = self._word(depth), self._pick(FILES)
        other, directory = self._pick(FILES), self._pick(DIRECTORIES)
        name = self._pick(NAMES)
        return self._pick(
            (
                f"echo {words} {self._word(depth)}", f"echo {words}", f"printf '%s|' {words}",
                f"cat {file}", "cat", f"wc -l {file}", "wc", f"sort {file}", "sort -r", "head -2",
                "tail -n 1", "tr a-z A-Z", "grep -n o", f"grep -c e {file}", "cut -c1-3", "uniq -c",
                f"ls {directory}", "ls", f"mkdir -p {directory}/s", f"touch {file}", f"rm {file}",
                f"cp {file} {other}", f"mv {file} {other}", f"rm -r {directory}/s d",
                f"mv {directory} moved", f"cd {directory}", "pwd", "cd", f"tee {file}",
                f"{name}={words}", f"export {name}={words}", f"unset {name}", f"echo ${name}",
                f"test -f {file}", f"[ -d {directory} ]", f"[ {words} = {words} ]", "true", "false",
                "nosuch", "seq 3", f"read {name}", f"read -r {name} z", f"set -- {words} b",
                'echo "$@" $#', "shift", f"umask 0{self._random.randint(0, 63):02o}",
                f"sed s/o/0/ {file}", f"ln -s {file} link",
                f"chmod 6{self._random.randint(0, 63):02o} {file}",
                f"cat < {file}", f"wc -c < {file}", f"find {directory} -maxdepth 1 -type f",
                "xargs", "xargs -n 1 echo", f"eval echo {words}", f"{name}={words} printenv {name}",
                f"[[ {words} == a* ]]", f"(( {name} + 2 ))", "echo $?", f"diff {file} {other}",
                f"ls -l {file}", f"cat <<< {words}", f"cat {file} {other}", "exit 3", "set -e",
                f"stat -c %s {file}", "cmp a.txt b.txt", f"dd if={file} of={other} status=none",
                f"bash -c 'echo $x; cat {file}'", "nl", "rev", "od -c",
                "md5sum", "true > ~/t; cat t",
            )
        )  # fmt: skip

    def _redirect(self, depth: int) -> str:
        file = self._pick(FILES)
        return self._pick(
            (
                f"> {file}", f">> {file}", f"2> {file}", "2>&1", "2>/dev/null", f"&> {file}",
                f"> {file} 2>&1", f"< {file}", f"<<< {self._word(depth)}", ">&2", "> /dev/null",
                f"2>> {file}", f"2>&1 > {file}", f"> {self._word(depth)}",
            )
        )  # fmt: skip

    def _word(self, depth: int) -> str:
        name, text = self._pick(NAMES), self._pick(TEXTS)
        quoted = "'" + text.replace("'", "'\\''") + "'"
        plain = text.split(" ")[0].replace("'", "")
        choices = [
            "one", "3", "a.txt", quoted, f"${name}", f'"${name}"', f"${{{name}:-{plain}}}",
            f'"{text} ${name}"', f"pre${{{name}}}post", "*.txt", "d*", "{a,b}", "{1..3}", "~",
            f"$(({self._random.randint(0, 9)}*3))", f"${{#{name}}}", f"${{{name}%o*}}",
            f"${{{name}#*o}}", "$?", '"$@"', "$1", "$#", "b\\ c", "$'t\\tt'",
        ]  # fmt: skip
        if depth:
            inner = self.program(0).replace("\n", "; ")
            choices += [f"$({inner})", f'"$({inner})"', f"x$({inner})"]
        return self._pick(tuple(choices))
