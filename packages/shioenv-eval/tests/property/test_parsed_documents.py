"""`shioenv grammar parse --json` prints valid UTF-8 and preserves the bytes of an input."""

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from shioenv.cli.printing import json_bytes
from shioenv_eval.cli import grammar
from shioenv_eval.grammars.describe import Describer

DESCRIBER = Describer([])


@given(st.binary(max_size=12) | st.sampled_from([b"caf\xe9", b"\xff", "ž".encode(), b"\\xff"]))
def test_an_input_is_given_back(word: bytes) -> None:
    text = word.decode("utf-8", "surrogateescape")
    printed = json_bytes(grammar._parsed(DESCRIBER.describe(text))).decode("utf-8", "strict")
    found = json.loads(printed)
    encoded = found.get("input_b64")
    given_back = base64.b64decode(encoded) if encoded else found["input"].encode()
    assert given_back == word
    assert "\\ud" not in printed
