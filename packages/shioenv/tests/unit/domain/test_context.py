import pytest

from shioenv.domain.context import Context, FileEntry
from shioenv.errors import ContextError

# The entry printed in Appendix B.
PAPER = {
    "day": 16,
    "group": "ubuntu",
    "links": 5,
    "month": "Oct",
    "owner": "ubuntu",
    "perms": "drwxrwxr-x",
    "size": 4096,
    "time": "19:43",
    "year": 2025,
}


def test_an_entry_has_the_papers_attributes_and_types() -> None:
    assert FileEntry.from_json(PAPER).to_json() == PAPER


def test_a_context_comes_back_with_its_fields_in_order() -> None:
    context = Context({"fs": {"b": PAPER, ".": PAPER}, "arch": "x86_64", "env": {"B": "", "A": ""}})
    assert Context.from_json(context.to_json()) == context
    assert context.to_json().startswith('{"arch":"x86_64","env":{"A":"","B":""},"fs":{".":')
    assert context.entry(".") == FileEntry.from_json(PAPER)
    assert context.entry("c") is None


@pytest.mark.parametrize("text", ["", "[]", '{"nope":1}'])
def test_what_is_no_context_is_refused(text: str) -> None:
    with pytest.raises(ContextError):
        Context.from_json(text)


def test_an_entry_with_other_attributes_is_refused() -> None:
    with pytest.raises(ContextError):
        FileEntry.from_json({**PAPER, "colour": "red"})
