"""A model's answers for scripts that sed rejects match sed's own errors."""

from __future__ import annotations

import shlex
from random import Random

import pytest

from shioenv.bash.words import split_words
from shioenv.behavior.observe import SandboxRunner
from shioenv_model.memory.forms import Forms
from shioenv_model.rules.usage_errors import usage_error

FORMS = Forms()
WRITTEN = (
    "s/a/b", "s/a/b/k", "s/usr/local/bin/", "k", "3", "3,", "/a", "/a/,p", "{p", "p}", "2{p;", "pp",
    "p p", "a", "1!!p", "1,2q", ":", "1:x", "1}", "y/abc/de/", "y/abc/de", "s/a/b/gg", "s/a/b/0",
    "s/a/b/2 3", "0p", "0,3p", "s/a/\\1/", "1#x", "b nowhere", "%s/a/b/", "2-4p", "{p}k", "5,$",
)  # fmt: skip
TAKEN = (
    "s/a/b/", "/beta/d", "2,4p", "$!d", "1!G;h;$!d", "s/\\(.*\\) \\(.*\\)/\\2 \\1/", "y/abc/xyz/",
    "/a/,/b/{s/x/y/;p}", "1~2!d;=", ":a;s/^/x/;2ta", "10q", "3i\\ hi", "s|/|_|gp", "$!{h;d}",
    "/x/I,+2p", "/^$/d;/^#/d", "s/[^ ]*/<&>/2",
)  # fmt: skip
CHARACTERS = "/;{}spdgG!,1290$~+abikyqQ:t \\[]x"


def spoiled(random: Random) -> str:
    """Return a script with one or two typing errors."""
    script = random.choice(TAKEN)
    for _ in range(random.choice((1, 1, 2))):
        place = random.randrange(len(script) + 1)
        end = place + random.randrange(2)
        script = script[:place] + random.choice(("", *CHARACTERS)) + script[end:]
    return script


def is_refused(text: str, observer: SandboxRunner) -> bool:
    """Whether a rule predicts that a script is rejected. The prediction itself must be right."""
    form = FORMS.form(split_words(text), observer.state())
    said = None if form is None else usage_error(form, observer.state())
    if said is None:
        return False
    right = observer.run(f"{text} README.md; (exit $?)")
    assert (said.output, said.exit_code) == (right.output, right.exit_code), text
    return True


@pytest.mark.parametrize("script", WRITTEN)
def test_a_refused_script(script: str, observer: SandboxRunner) -> None:
    assert is_refused(f"sed {shlex.quote(script)}", observer)
    assert is_refused(f"sed -n -e {shlex.quote(script)}", observer)


@pytest.mark.parametrize("seed", range(4))
def test_spoiled_scripts(seed: int, observer: SandboxRunner) -> None:
    random = Random(seed)
    texts = {f"sed {shlex.quote(spoiled(random))}" for _ in range(60)}
    assert sum(is_refused(text, observer) for text in sorted(texts)) > 20


@pytest.mark.parametrize("script", TAKEN)
def test_a_script_that_is_taken(script: str, observer: SandboxRunner) -> None:
    assert not is_refused(f"sed {shlex.quote(script)}", observer)
