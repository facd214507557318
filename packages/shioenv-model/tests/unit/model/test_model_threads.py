"""One model is used by several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import shioenv
from support.nightly import LARGER, scaled

THREADS = 8


@LARGER
def test_threads_share_a_model() -> None:
    model = shioenv.load_model()
    inputs = [f"cd /tmp; echo {n} | wc -c; ls -{'lat1'[n % 4]} /etc" for n in range(scaled(12, 24))]
    alone = [model.answer(text) for text in inputs]
    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(shioenv.load_model().answer, inputs)) == alone
