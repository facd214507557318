from dataclasses import replace

import pytest

from shioenv.behavior.compare import (
    NOTHING,
    Channel,
    Noise,
    NoisyNames,
    differs,
    noise_threshold,
    similarity,
)
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.errors import UsageError

FULL = Behavior(0, b"one two three\n", ContextPatch((("=", "/cwd", "/tmp"),)), {"notes.txt": "00"})


def added(*names: str) -> ContextPatch:
    return ContextPatch(tuple(("a", f"/fs/~1tmp~1{name}", {"size": 0}) for name in names))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (b"", b"", 1.0),
        (b"", b"a", 0.0),
        (b"abcd", b"abcd", 1.0),
        (b"abcd", b"abce", 0.75),
        (b"ABC", b"abc", 0.0),
        ("é".encode(), "è".encode(), 0.0),
        (b"\xff", b"\xfe", 0.0),
    ],
)
def test_similarity_is_the_indel_ratio_of_raw_text(a: bytes, b: bytes, expected: float) -> None:
    assert similarity(a, b) == similarity(b, a) == expected


def test_similarity_looks_at_the_first_8192_characters() -> None:
    text = "é" * 8192
    assert similarity((text + "a").encode(), (text + "b").encode()) == 1.0
    assert similarity(text.encode(), (text[:-1] + "a").encode()) < 1.0


def test_the_noise_threshold_is_capped() -> None:
    assert noise_threshold([b"a"] * 3) == 0.95
    assert noise_threshold([b"a"]) == 0.95
    assert noise_threshold([b"a"] * 3, cap=1.0) == 1.0


def test_the_noise_threshold_is_algorithm_1() -> None:
    # similarities .75, .75, 1: mean .8333, sample deviation .1443
    assert noise_threshold([b"abcd", b"abce", b"abcd"]) == pytest.approx(
        0.8333333 - 2 * 0.1443376, abs=1e-6
    )
    assert noise_threshold([b"abcd", b"abce"]) == 0.75
    assert noise_threshold([b"aaaa", b"aaaa", b"bbbb"]) == 0.0


def test_a_noise_threshold_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError):
        noise_threshold([])


@pytest.mark.parametrize(
    ("reduced", "channel"),
    [
        (replace(FULL, exit_code=1), Channel.EXIT_CODE),
        (replace(FULL, timed_out=True), Channel.TIMED_OUT),
        (replace(FULL, output_truncated=True), Channel.OUTPUT_TRUNCATED),
        (replace(FULL, patch=ContextPatch()), Channel.PATCH),
        (replace(FULL, patch_digest="1"), Channel.PATCH),
        (replace(FULL, content_digests={"notes.txt": "11"}), Channel.CONTENT),
        (replace(FULL, output=b""), Channel.OUTPUT),
    ],
)
def test_each_channel_alone_makes_the_difference(reduced: Behavior, channel: Channel) -> None:
    found = differs(FULL, reduced, 0.95)
    assert found is not None
    assert found.channel is channel


def test_what_is_not_behavior_makes_no_difference() -> None:
    reduced = replace(FULL, stdout=b"x", stderr=b"", volatile=True, shell_state_known=False)
    assert differs(FULL, reduced, 0.95) is None


def test_both_failing_alike_does_not_hide_what_else_differs() -> None:
    full, reduced = Behavior(1, b"cannot stat 'a'"), Behavior(1, b"missing operand")
    assert differs(full, reduced, 0.95) is not None


def test_a_similarity_equal_to_the_threshold_differs() -> None:
    full, reduced = Behavior(0, b"abcd"), Behavior(0, b"abce")
    assert differs(full, reduced, 0.75) is not None
    assert differs(full, reduced, 0.7499) is None


def test_a_threshold_of_one_asks_for_equal_bytes() -> None:
    text = b"a" * 9000
    assert differs(Behavior(0, text), Behavior(0, text), 1.0) is None
    assert differs(Behavior(0, text), Behavior(0, text + b"b"), 1.0) is not None
    assert differs(Behavior(0, text), Behavior(0, text + b"b"), 0.95) is None


def test_steady_runs_ignore_nothing() -> None:
    noise = Noise.of([FULL] * 3)
    assert (noise.threshold, noise.strict_threshold, noise.volatile) == (0.95, 1.0, False)
    assert noise.ignored == NOTHING


def test_unsteady_output_lowers_both_thresholds() -> None:
    noise = Noise.of([Behavior(0, text) for text in (b"abcdefgh", b"abcdefgi", b"abcdefgh")])
    assert noise.volatile
    assert noise.threshold == noise.strict_threshold < 0.95


def test_a_value_the_runs_disagree_about_is_left_out() -> None:
    runs = [replace(FULL, patch=ContextPatch((("a", "/env/A", str(n)),))) for n in range(3)]
    noise = Noise.of(runs)
    assert noise.volatile
    reduced = replace(FULL, patch=ContextPatch((("a", "/env/A", "9"),)))
    assert differs(runs[0], reduced, noise.threshold, ignore=noise.ignored) is None
    other = replace(FULL, patch=ContextPatch((("a", "/env/A", "9"), ("a", "/env/B", "9"))))
    assert differs(runs[0], other, noise.threshold, ignore=noise.ignored) is not None


def test_a_name_chosen_at_random_is_left_out_in_runs_not_seen_yet() -> None:
    runs = [replace(FULL, patch=added(f"tmp.{name}", "log")) for name in ("aXbQ", "Zk1m", "rr0p")]
    noise = Noise.of(runs)
    same = replace(FULL, patch=added("tmp.v4Lw", "log"))
    assert differs(runs[0], same, noise.threshold, ignore=noise.ignored) is None
    longer = replace(FULL, patch=added("tmp.v4Lwx", "log"))
    assert differs(runs[0], longer, noise.threshold, ignore=noise.ignored) is not None
    elsewhere = replace(FULL, patch=added("tmp.v4~1w", "log"))
    assert differs(runs[0], elsewhere, noise.threshold, ignore=noise.ignored) is not None
    without = replace(FULL, patch=added("tmp.v4Lw"))
    assert differs(runs[0], without, noise.threshold, ignore=noise.ignored) is not None


def test_contents_and_exit_codes_the_runs_disagree_about_are_left_out() -> None:
    runs = [replace(FULL, exit_code=n, content_digests={"f": str(n), "g": "1"}) for n in range(3)]
    noise = Noise.of(runs)
    reduced = replace(FULL, exit_code=9, content_digests={"f": "9", "g": "1"})
    assert differs(runs[0], reduced, noise.threshold, ignore=noise.ignored) is None
    other = replace(FULL, exit_code=9, content_digests={"f": "9", "g": "2"})
    assert differs(runs[0], other, noise.threshold, ignore=noise.ignored) is not None


def test_a_run_that_says_it_is_volatile_makes_the_noise_so() -> None:
    assert Noise.of([replace(FULL, volatile=True)]).volatile


def test_a_name_chosen_at_random_stands_for_no_path_of_several_names() -> None:
    names = NoisyNames.of([{"/fs/~1tmp~1aXbY": 1}, {"/fs/~1tmp~1QrsT": 1}])
    assert "/fs/~1tmp~1zz.z" in names
    assert "/fs/~1tmp~1z~1z" not in names
    assert "/fs/~1tmp~1zz/z" not in names
