import json
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from shioenv.domain.context import FIELDS, Context
from shioenv.domain.patch import ContextPatch, diff, diff_documents

KEYS = st.text(max_size=4) | st.sampled_from(["a", "a/b", "a~b", "~1", "/", "", "a-"])
LEAVES = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"]) | st.just(1.0)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)
CONTEXTS = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5).map(Context)


def exactly(document: Any) -> str:
    return json.dumps(document, sort_keys=True)


@given(DOCUMENTS, DOCUMENTS)
def test_diff_then_apply_gives_the_second_document(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert exactly(diff_documents(before, after).apply(before)) == exactly(after)


@given(CONTEXTS, CONTEXTS)
def test_diff_then_apply_gives_the_second_context(before: Context, after: Context) -> None:
    patch = diff(before, after)
    assert exactly(patch.apply(before.document)) == exactly(after.document)
    assert bool(patch) == (exactly(before.document) != exactly(after.document))


@given(DOCUMENTS)
def test_a_document_does_not_differ_from_itself(document: dict[str, Any]) -> None:
    assert diff_documents(document, document) == ContextPatch()


@given(DOCUMENTS, DOCUMENTS)
def test_another_library_applies_the_strict_form_alike(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    strict = diff_documents(before, after).to_rfc6902()
    assert exactly(jsonpatch.JsonPatch(strict).apply(before)) == exactly(after)


OBJECTS = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=4))


@given(st.dictionaries(KEYS, OBJECTS, max_size=5), st.dictionaries(KEYS, OBJECTS, max_size=5))
def test_our_form_of_another_librarys_patch_applies_alike(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    theirs = list(jsonpatch.make_patch(before, after).patch)
    assert ContextPatch.from_rfc6902(theirs).apply(before) == jsonpatch.apply_patch(before, theirs)


@given(DOCUMENTS, DOCUMENTS)
def test_decode_undoes_encode(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = diff_documents(before, after)
    assert ContextPatch.from_json(patch.to_json()) == patch
    assert ContextPatch.from_rfc6902(patch.to_rfc6902()) == patch


@given(DOCUMENTS, DOCUMENTS, st.randoms())
def test_order_is_canonical(before: dict[str, Any], after: dict[str, Any], rng: Any) -> None:
    patch = diff_documents(before, after)
    shuffled = list(patch.operations)
    rng.shuffle(shuffled)
    assert ContextPatch(tuple(shuffled)) == patch


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_composed_patches_apply_one_after_the_other(
    first: dict[str, Any], second: dict[str, Any], third: dict[str, Any]
) -> None:
    patch = diff_documents(first, second).compose(diff_documents(second, third))
    assert exactly(patch.apply(first)) == exactly(third)
