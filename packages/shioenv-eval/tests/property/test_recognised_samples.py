"""The grammar of a command derives every input that is sampled from it."""

from itertools import islice

import pytest

from shioenv.errors import SamplesExhaustedError
from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammar, names_of_grammars
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import draw_samples
from shioenv_eval.grammars.recognise import Recogniser
from support.nightly import LARGER, scaled

FILES = ("documents/notes.txt", "misc/a file.txt", "misc/it's.txt", "misc/star*.txt")


@LARGER
@pytest.mark.parametrize("policy", ["paper", "people"])
@pytest.mark.parametrize("name", names_of_grammars())
def test_single_inputs_are_derived(name: str, policy: str) -> None:
    grammar = load_grammar(name)
    catalogue = {**stand_in_catalogue(), "File": FILES}
    if policy == "paper":  # the other one writes no word that begins with a dash
        catalogue["File"] = (*FILES, "-n.txt")
    recogniser = Recogniser(bind(grammar, catalogue))
    drawing = Drawing(policy=policy, seed=7, start_directories=("/home/ubuntu",), composite_share=0)
    stream = draw_samples(drawing, catalogue=catalogue, grammars=[grammar])
    drawn = 0
    try:
        for one in islice(stream, scaled(12, 200) if policy == "paper" else scaled(6, 60)):
            drawn += 1
            if policy == "paper":
                assert recogniser.derives(one.input.input_args)
            for argument in one.input.segments[0].arguments:
                assert recogniser.derives_argument(argument.marked), one.input.text
    except SamplesExhaustedError:
        assert drawn > 0  # `hostid` takes next to nothing
