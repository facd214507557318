"""Invalid JSON, invalid TOML and excessive nesting are one error."""

from __future__ import annotations

import pytest

from shioenv.files.documents import DEEPEST, parse_json, parse_toml


@pytest.mark.parametrize("depth", [DEEPEST + 1, 900, 5_000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_deep_json_is_one_error(depth: int, opening: str, closing: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(f"{opening * depth}1{closing * depth}")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\xfd", b"[1]]", b"1" * 5000, b"\0"])
def test_what_is_no_json_is_the_same_kind_of_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(content)


def test_json_of_the_permitted_depth_is_read() -> None:
    value = parse_json("[" * DEEPEST + "]" * DEEPEST)
    for _ in range(DEEPEST - 1):
        (value,) = value
    assert value == []


@pytest.mark.parametrize(
    "text",
    [
        f"a = {'[' * 5000}{']' * 5000}",
        f"a = {'[' * 300}{']' * 300}",
        f"a = {'{ a = ' * 2000}1{' }' * 2000}",
        f"[{'.'.join(['a'] * 100_000)}]",
        f"{'.'.join(['a'] * 100_000)} = 1",
        " . ".join(['"a b"'] * 50_000) + " = 1",
        "'a'.b." * 200 + "c = 1",
        f"[[{'.'.join(['a'] * 200)}]]\nb = 1",
    ],
    ids=lambda text: text[:12],
)
def test_deep_toml_is_one_error(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(text)


@pytest.mark.parametrize("content", [b"a", b"\xff", b"a = 1\na = 2", b"\0"])
def test_what_is_no_toml_is_the_same_kind_of_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_toml(content)


def test_toml_is_read() -> None:
    text = f'a.b = [1, {{ c = "{"Sentence of words. " * 200}" }}]\n[d]\ne = "{"x" * 100_000}"\n'
    assert parse_toml(text)["d"]["e"] == "x" * 100_000
    assert parse_toml(text.encode())["a"]["b"][0] == 1


@pytest.mark.parametrize("text", ["a = 1", "a = 1\r\n[b]\r\n", "", "# only a comment"])
def test_a_mark_of_the_byte_order_before_toml_is_left_out(text: str) -> None:
    marked = f"\ufeff{text}"
    assert parse_toml(marked) == parse_toml(marked.encode()) == parse_toml(text)
    with pytest.raises(ValueError, match=r"line 1"):
        parse_toml(f"\ufeff{marked}")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_toml_in_another_encoding_is_one_error(encoding: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_toml("a = é".encode(encoding))
