"""The composer abstains from programs beyond its scope, though Bash parses them."""

from __future__ import annotations

import pytest

from shioenv.errors import Abstained
from shioenv_model.composition.reading import read_program


@pytest.mark.parametrize(
    "text",
    [
        "cat <<E\nx",
        "time ls",
        "!",
        "coproc ls",
        "exec {fd}> x",
        "for 1 in a; do b; done",
        "ls |",
    ],
)
def test_what_is_beyond_it_is_abstained_from(text: str) -> None:
    with pytest.raises(Abstained):
        read_program(text)


def test_everything_else_is_the_program_that_bash_reads() -> None:
    assert read_program(" \n# only this\n") == ()
    assert len(read_program("if a; then b; fi; f() { c; }; [[ d ]] | e & cat <<F\ng\nF\n")) == 4
