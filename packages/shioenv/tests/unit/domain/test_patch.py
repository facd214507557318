import pytest

from shioenv.domain.patch import ContextPatch, Operation
from shioenv.errors import PatchError

DOCUMENT = {"fs": {"a": {"size": 1}, "b/c": {"size": 2}}, "cwd": "/", "list": [1, 2]}


def test_operations_are_sorted_by_path_and_parents_come_first() -> None:
    patch = ContextPatch.from_json(
        '[["r","/fs/d~1x"],["=","/cwd","/tmp"],["a","/fs/d-x",{}],["m","/fs/d","/fs/e"]]'
    )
    assert [operation[1] for operation in patch.operations] == [
        "/cwd",
        "/fs/d",
        "/fs/d-x",
        "/fs/d~1x",
    ]


def test_order_does_not_matter_to_equality_where_operations_are_independent() -> None:
    operations: tuple[Operation, ...] = (("a", "/x", 1), ("r", "/fs/a"))
    assert ContextPatch(operations) == ContextPatch(operations[::-1])


def test_operations_that_depend_on_each_other_keep_their_order() -> None:
    operations: tuple[Operation, ...] = (("r", "/cwd"), ("a", "/cwd", {}), ("a", "/cwd/x", 1))
    assert ContextPatch(operations).operations == operations
    assert ContextPatch(operations).apply(DOCUMENT)["cwd"] == {"x": 1}


def test_apply_leaves_the_document_alone() -> None:
    patch = ContextPatch.from_json('[["=","/fs/a/size",9],["m","/fs/b~1c","/fs/z"]]')
    assert patch.apply(DOCUMENT)["fs"] == {"a": {"size": 9}, "z": {"size": 2}}
    assert DOCUMENT["fs"] == {"a": {"size": 1}, "b/c": {"size": 2}}


def test_a_value_added_is_not_changed_by_a_later_operation() -> None:
    value: dict[str, int] = {}
    ContextPatch((("a", "/v", value), ("a", "/v/x", 1))).apply({})
    assert value == {}


@pytest.mark.parametrize(
    "operation",
    [
        ("r", "/nope"),
        ("=", "/fs/nope", 1),
        ("a", "/nope/x", 1),
        ("a", "/cwd/x", 1),
        ("r", "/list/0"),
        ("a", "/list/-", 1),
        ("r", ""),
        ("=", "", 3),
        ("m", "/fs", "/fs/a"),
        ("m", "/nope", "/nope"),
    ],
)
def test_an_operation_that_does_not_fit_is_named(operation: tuple[str, ...]) -> None:
    with pytest.raises(PatchError, match="does not apply"):
        ContextPatch((operation,)).apply(DOCUMENT)


@pytest.mark.parametrize(
    "source",
    ["{", "{}", "3", '["r"]', '[["x","/a"]]', '[["r","a"]]', '[["r","/a",1]]', '[["a","/a"]]',
     '[[]]', '[[1,2]]', '[["m","/a",3]]'],
)  # fmt: skip
def test_what_is_no_patch_is_refused(source: str) -> None:
    with pytest.raises(PatchError):
        ContextPatch.from_json(source)


def test_an_empty_patch_is_false_and_minified() -> None:
    assert not ContextPatch()
    assert ContextPatch().to_json() == "[]"
    assert ContextPatch((("a", "/é", {"k": 1}),)).to_json() == '[["a","/é",{"k":1}]]'


def test_rfc_6902_operations_outside_the_four_are_refused() -> None:
    for item in ({"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/a"}, {}):
        with pytest.raises(PatchError):
            ContextPatch.from_rfc6902([item])


def test_compose_does_one_then_the_other() -> None:
    first, later = ContextPatch((("a", "/x", {}),)), ContextPatch((("a", "/x/y", 1),))
    assert first.compose(later).apply({}) == {"x": {"y": 1}}


def test_a_list_nested_too_deeply_is_no_patch() -> None:
    with pytest.raises(PatchError, match="not a context patch"):
        ContextPatch.from_json("[" * 100_000)
