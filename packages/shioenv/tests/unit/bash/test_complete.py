"""The effort of finding the ends of a script's commands."""

from __future__ import annotations

import pytest

from shioenv.bash.complete import ScriptReader

LINES = 200


@pytest.mark.parametrize(
    ("opening", "line", "closing"),
    [
        ("f() {\n", 'echo "$x" $(id) # {} }\n', "}\n"),
        ("if a\nthen\n", "for i in 1; do :; done\n", "fi\n"),
        ("for i in 1\ndo\nwhile a\ndo\n", "if a; then b; else c; fi\n", "done\ndone\n"),
        ("f() {\ncase x in\n", 'a) echo "(b)"\n;;\n', "esac\n}\n"),
        ("case x in a)\n", "(b)\n", "esac\n"),
        ("x=$(\n", 'echo "(a)" >b\n', ")\n"),
        ("x=(\n", "'{a}' b\n", ")\n"),
        ("f() {\ncat <<A\n", "(a)\n", "A\n}\n"),
        ("f() {\n", "cat <<A\n(a)\nA\n", "}\n"),
        ("awk '\n", '{ print "(a)" }\n', "' b\n"),
        ('echo "\n', "{ a [b] it's }\n", '"\n'),
    ],
)
def test_the_work_grows_with_the_length_of_the_command(
    opening: str, line: str, closing: str
) -> None:
    script = opening + line * LINES + closing
    reader, parsed = ScriptReader(), 0
    *lines, last = script.splitlines(keepends=True)
    for one in lines:
        assert reader.add(one) is None
        parsed = reader.parsed
    assert reader.add(last) == script.removesuffix("\n")
    assert parsed < 8 * len(script)


@pytest.mark.parametrize(
    "script",
    [
        "cat <<A; { x\nbody\nA\ny\nz\n}\n",
        "f() {\na \\\nb\nc\n}\n",
        "f() {\na | # b \\\nb\nc\n}\n",
        "case x in(a) b;;\n(c) d;;\nesac\n",
        "x=(1\n[2]=3\n)\n",
        "if a\nthen b\nelif c\nd\nthen e\nf\nelse g\nh\nfi\n",
        'echo "$(a\nb\nc)" `\n`\n',
        "f() {\nx=$((case a in (a) b;; esac) )\nc\nd\n}\n",
    ],
)
def test_a_shortened_command_is_complete_where_the_whole_one_is(script: str) -> None:
    reader = ScriptReader()
    *lines, last = script.splitlines(keepends=True)
    assert [reader.add(line) for line in lines] == [None] * len(lines)
    assert reader.add(last) == script.removesuffix("\n")
    assert not reader.refused


def test_a_refused_line_within_a_command_ends_it_at_once() -> None:
    reader = ScriptReader()
    assert [reader.add(line) for line in ("f() {\n", "a\n", "b\n")] == [None] * 3
    assert reader.add("fi\n") == "f() {\na\nb\nfi"
    assert reader.refused
