"""Grammars of a user's directory, in addition to the shipped ones."""

import os
from pathlib import Path

import pytest

from shioenv.domain.inputs import Input, Session
from shioenv.env.scorer import is_declared_volatile
from shioenv.errors import UnknownGrammarError, UsageError
from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.library import (
    LARGEST,
    MOST,
    OF_SYSTEMS,
    VARIABLE,
    checked_grammar,
    grammars_of_system,
    load_grammars,
    names_of_grammars,
    own_grammars,
)
from shioenv.grammar.notation import FaultyGrammarError
from shioenv.recording.text_score import read_arguments
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import draw_samples

GRAMMAR = """# Says a word.
command   {name}
manual    {name}(1), words 1.0
package   words
volatile  no

start     {name} <option>* <number>

options
  -l, --loud

example {name} -l 3
"""


def write(directory: Path, *names: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / f"{name}.grammar").write_text(GRAMMAR.format(name=name))
    return directory


def test_own_grammars_stand_beside_the_shipped_ones(tmp_path: Path) -> None:
    own = own_grammars(write(tmp_path / "mine", "say", "tell"))
    assert own is not None
    assert own.names == ("say", "tell")
    assert set(names_of_grammars(own=own)) == {*names_of_grammars(), "say", "tell"}
    assert [grammar.name for grammar in load_grammars(["say", "df"], own=own)] == ["say", "df"]


def test_inputs_are_drawn_from_an_own_grammar_and_taken_apart_by_it(tmp_path: Path) -> None:
    own = own_grammars(write(tmp_path / "mine", "say"))
    grammars = load_grammars(["say"], own=own)
    drawing = Drawing(start_directories=("/",), composite_share=0)
    drawn = draw_samples(drawing, count=5, catalogue=stand_in_catalogue(), grammars=grammars)
    assert all(one.input.text.startswith("say ") for one in drawn)
    assert read_arguments("say -l 3", own=own).notes == []
    assert read_arguments("say -l 3").notes == ["say has no grammar: each word is one argument"]


def test_an_own_grammar_takes_the_place_of_a_shipped_one(tmp_path: Path) -> None:
    own = own_grammars(write(tmp_path / "mine", "df"))
    (df,) = load_grammars(["df"], own=own)
    assert {name for option in df.options for name in option.names} == {"-l", "--loud"}


def test_environments_ask_an_own_grammar_whether_a_command_is_volatile(tmp_path: Path) -> None:
    text = GRAMMAR.format(name="say").replace("volatile  no", "volatile  yes: it says the time")
    (tmp_path / "say.grammar").write_text(text)
    session = Session("/", (Input.from_marked(["say", "3"]),))
    assert is_declared_volatile(session, own_grammars(tmp_path))
    assert not is_declared_volatile(session)


def test_the_digest_is_of_names_and_contents_alone(tmp_path: Path) -> None:
    one = own_grammars(write(tmp_path / "one", "say"))
    two = own_grammars(write(tmp_path / "two", "say"))
    (tmp_path / "two" / "README").write_text("notes")
    assert one is not None
    assert two is not None
    assert one.sha256 == two.sha256 == getattr(own_grammars(tmp_path / "two"), "sha256", None)
    with (tmp_path / "two" / "say.grammar").open("a") as file:
        file.write("# more\n")
    assert getattr(own_grammars(tmp_path / "two"), "sha256", None) != one.sha256


def test_the_variable_names_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_grammars() is None
    monkeypatch.setenv(VARIABLE, str(write(tmp_path / "mine", "say")))
    own = own_grammars()
    assert own is not None
    assert own.names == ("say",)
    other = own_grammars(write(tmp_path / "other", "tell"))
    assert other is not None
    assert other.names == ("tell",)


def test_hostile_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        own_grammars(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="has no grammars"):
        own_grammars(write(tmp_path / "empty"))
    many = write(tmp_path / "many", *(f"c{number}" for number in range(MOST + 1)))
    with pytest.raises(UsageError, match="1,001 grammars"):
        own_grammars(many)
    for name in ("-rf", "a b", "a\nb", "ü", "x" * 65):
        place = write(tmp_path / f"name{len(name)}{ord(name[0])}", name)
        with pytest.raises(UsageError, match="not a valid name of a command"):
            own_grammars(place)


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "mine")
    os.mkfifo(place / "say.grammar")
    with pytest.raises(UsageError, match="a named pipe"):
        own_grammars(place)
    (place / "say.grammar").unlink()
    (place / "say.grammar").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="a device"):
        own_grammars(place)
    (place / "say.grammar").unlink()
    with (place / "say.grammar").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(UsageError, match="larger than"):
        own_grammars(place)
    (place / "say.grammar").write_bytes(b"\x7fELF\x00\xff\xfe")
    with pytest.raises(FaultyGrammarError):
        load_grammars(["say"], own=own_grammars(place))


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password hunter2\n")
    place = write(tmp_path / "mine", "say")
    (place / "tell.grammar").symlink_to(tmp_path / "secret")
    for read in (
        lambda: own_grammars(place),
        lambda: load_grammars(["tell"], directory=place),
    ):
        with pytest.raises(UsageError, match="outside its directory") as caught:
            read()
        assert "hunter2" not in str(caught.value)
    (place / "tell.grammar").unlink()
    (place / "loud.grammar").symlink_to("say.grammar")
    (tmp_path / "other").symlink_to(place)
    assert getattr(own_grammars(tmp_path / "other"), "names", None) == ("loud", "say")


def chain(body: str, levels: int) -> str:
    lines = [f"<a{n}> = " + body.format(f"<a{n + 1}>") for n in range(levels)]
    return "\n".join([*lines, f"<a{levels}> = x | ()", ""])


@pytest.mark.parametrize(
    "text",
    [
        chain("{0} {0}", 60),
        f"<a0> = {'(' * 2000}x{')' * 2000}\n",
    ],
    ids=["doubling", "nested groups"],
)
def test_grammars_that_grow_without_bound_are_faulty(tmp_path: Path, text: str) -> None:
    header = GRAMMAR.format(name="say").replace("<number>", "<a0>")
    (tmp_path / "say.grammar").write_text(f"{header}{text}")
    with pytest.raises(FaultyGrammarError):
        load_grammars(["say"], own=own_grammars(tmp_path))


def test_many_option_lines_are_read(tmp_path: Path) -> None:
    lines = "".join(f"  --option-{number}=<number>\n" for number in range(5000))
    text = GRAMMAR.format(name="say").replace("  -l, --loud\n", f"  -l, --loud\n{lines}")
    (tmp_path / "say.grammar").write_text(text)
    (say,) = load_grammars(["say"], own=own_grammars(tmp_path))
    assert len(say.options) == 5001


def test_an_unknown_command_is_told_how_it_gets_a_grammar(tmp_path: Path) -> None:
    with pytest.raises(UnknownGrammarError) as caught:
        load_grammars(["zzyzx"], own=own_grammars(write(tmp_path / "mine", "say")))
    assert "shioenv grammar draft zzyzx > DIR/zzyzx.grammar" in str(caught.value)
    with pytest.raises(UnknownGrammarError, match="did you mean say"):
        load_grammars(["sayy"], own=own_grammars(tmp_path / "mine"))


def test_a_systems_own_grammars_are_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_grammars("debian-12-dev")
    assert own == grammars_of_system("debian-12-dev")
    assert own is not None
    assert len(own.names) == 25
    assert not {*own.names} & {*names_of_grammars()}  # sets of other systems are as before
    assert grammars_of_system("debian-12") is None
    monkeypatch.setenv("SHIOENV_GRAMMARS", "debian-12-dev")
    assert own_grammars() == own


def test_the_grammars_of_systems_have_no_faults() -> None:
    for place in OF_SYSTEMS.iterdir():
        own = grammars_of_system(place.name)
        assert own is not None
        for name in own.names:
            checked_grammar(name, place)
