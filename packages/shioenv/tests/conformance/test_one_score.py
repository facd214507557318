"""There is one definition of the executed input and of argument separation: the record's."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

import shioenv
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.inputs import Input, Session
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.session import SessionRecorder
from shioenv.recording.text_score import read_arguments
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample


def recorded(observer: SandboxRunner, shell_input: Input, cwd: str) -> float | None:
    session = Session(cwd, (shell_input,))
    recorder = SessionRecorder(scoring=Scoring())
    score = recorder.record(session, observer, Random(0)).score
    assert score is not None
    return score.irreducibility


@pytest.mark.parametrize(
    ("text", "input_args", "expected"),
    [
        ("echo $PWD", ["echo", "$PWD"], 1.0),
        ("echo $OLDPWD", ["echo", "$OLDPWD"], 0.0),
        ("uname -qf", ["uname", "-q<ns>", "<ns>f"], 0.0),
        ("ls -laT 32", ["ls", "-l<ns>", "<ns>a<ns>", "<ns>T 32"], 7 / 9),
    ],
)
def test_a_text_scores_as_its_record_does(
    observer: SandboxRunner, text: str, input_args: list[str], expected: float
) -> None:
    of_text = shioenv.score(text, runner=observer, system=observer.system).irreducibility
    of_record = recorded(observer, Input.from_marked(input_args), "/home/ubuntu")
    assert of_text == of_record == pytest.approx(expected)


def test_texts_of_a_sampler_score_as_its_records_do(observer: SandboxRunner) -> None:
    compared = 0
    for sampler in ("gcs", "ucs"):
        drawing = Drawing(sampler=sampler, seed=4, horizon=4)
        for drawn in islice(sample(drawing, system=observer.system), 25):
            reading = read_arguments(drawn.input.text, observer.system)
            if drawn.volatile or reading.input != drawn.input:
                continue
            of_text = shioenv.score(drawn.input.text, runner=observer, system=observer.system)
            if not of_text.volatile:
                compared += 1
                assert of_text.irreducibility == recorded(observer, drawn.input, drawn.cwd)
    assert compared > 20


def test_the_reading_says_what_nobody_can_be_sure_of(observer: SandboxRunner) -> None:
    assert read_arguments("ls -la documents | sort -k 2", observer.system).notes == []
    assert read_arguments("ls | xargs -n 1 grep -m 1 x", observer.system).notes == []
    (note,) = read_arguments("uname -qf --fs 3 -sn", observer.system).notes
    assert note.startswith("uname has no option -q, f, --fs; ")
    (note,) = read_arguments("X=1 nosuch a b", observer.system).notes
    assert note.startswith("nosuch has no grammar: ")
