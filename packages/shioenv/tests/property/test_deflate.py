import zlib

from hypothesis import given
from hypothesis import strategies as st

from shioenv.system.home_files import deflate

pieces = st.one_of(st.binary(max_size=40), st.sampled_from([b"ab" * 200, b"\0" * 700, b"hello "]))


@given(st.lists(pieces, max_size=12).map(b"".join))
def test_what_is_deflated_inflates_again(data: bytes) -> None:
    assert zlib.decompress(deflate(data), -15) == data


def test_matches_reach_back_to_the_edge_of_the_window() -> None:
    filler = bytes(index * 7 % 251 for index in range(32768 - 300))
    for distance in (0, 299, 300, 301, 600):
        data = b"needle in a haystack" + filler + bytes(distance) + b"needle in a haystack"
        assert zlib.decompress(deflate(data), -15) == data
