"""Laws of the operations that compose inputs."""

from __future__ import annotations

import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shioenv.bash.program import Simple
from shioenv.bash.words import quoted
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.errors import Abstained
from shioenv_model.bash.patterns import escaped, matches
from shioenv_model.bash.unexpanded import braces, references
from shioenv_model.composition.changes import Changes, composed
from shioenv_model.composition.reading import read_program

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
SHELL = st.text(st.sampled_from("ab '\"\\$`(){};&|<>\n#=*-!~[]0"), max_size=24)
NAMES = ("a", "b", "d", "d/f", "d/g", "/t")


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_quoted_words_are_read_as_one_command(words: list[str]) -> None:
    text = " ".join(quoted(word, command=not place) for place, word in enumerate(words))
    assert shlex.split(text) == words
    ((_, pipeline),) = read_program(text)[0].pipelines
    (command,) = pipeline.stages
    assert isinstance(command, Simple)
    assert [shlex.split(word) for word in command.words] == [[word] for word in words]
    assert not any(references(word).names for word in command.words)


@given(SHELL)
def test_every_text_is_read_or_abstained_from(text: str) -> None:
    try:
        program = read_program(text)
    except Abstained:
        return
    for job in program:
        for _, pipeline in job.pipelines:
            for command in pipeline.stages:
                for word in command.words if isinstance(command, Simple) else ():
                    assert word in text
                    assert all(braces(word)) or "{" in word


@given(TEXTS, TEXTS)
def test_an_escaped_text_matches_itself_alone(text: str, other: str) -> None:
    assert matches(escaped(text), text)
    assert matches(escaped(text), other) == (text == other)


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[str, Any], list[ContextPatch]]:
    """Generate a context with a few files, and patches that apply one after the other. They change
    owners, because a directory's size is undefined once an entry was added or removed.
    """
    sizes = st.integers(0, 2)
    files = {name: {"owner": draw(sizes)} for name in NAMES if draw(st.booleans())}
    start: dict[str, Any] = {"cwd": "/h", "env": {"A": "1"}, "fs": files}
    document, patches = start, []
    for _ in range(draw(st.integers(0, 5))):
        names = sorted(document["fs"])
        kind = draw(st.sampled_from("a=rme"))
        free = [name for name in NAMES if name not in names]
        if (kind in "=rm" and not names) or (kind in "am" and not free):
            continue
        name = draw(st.sampled_from(names if kind in "=rm" else free or NAMES)).replace("/", "~1")
        size = draw(sizes)
        made: dict[str, Operation] = {
            "a": ("a", f"/fs/{name}", {"owner": size}),
            "=": ("=", f"/fs/{name}/owner", size),
            "r": ("r", f"/fs/{name}"),
            "e": ("=", "/env/A", str(size)),
        }
        if kind == "m":
            target = draw(st.sampled_from(free)).replace("/", "~1")
            made["m"] = ("m", f"/fs/{name}", f"/fs/{target}")
        patches.append(ContextPatch((made[kind],)))
        document = patches[-1].apply(document)
    return start, patches


@given(histories())
def test_patches_put_together_do_what_they_do_one_by_one(
    history: tuple[dict[str, Any], list[ContextPatch]],
) -> None:
    start, patches = history
    end: Any = start
    for patch in patches:
        end = patch.apply(end)
    together = composed(start, patches, "/h")
    assert together.apply(start) == end
    assert len(together.operations) <= 1 + 2 * len(NAMES)


@given(histories(), st.integers(0, 5))
def test_a_difference_leads_from_one_end_to_the_other(
    history: tuple[dict[str, Any], list[ContextPatch]], place: int
) -> None:
    start, patches = history
    before, after = Changes(start), Changes(start)
    middle: Any = start
    for number, patch in enumerate(patches):
        after.add(patch)
        if number < place:
            before.add(patch)
            middle = patch.apply(middle)
    end = middle
    for patch in patches[place:]:
        end = patch.apply(end)
    assert after.since(before).apply(middle) == end
