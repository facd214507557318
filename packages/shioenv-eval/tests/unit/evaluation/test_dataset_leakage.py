"""Every leak of a test input through a training set is found; the strongest counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shioenv_eval.leakage as leakage_module
from shioenv.behavior.compare import nearest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.split import Shares, split
from shioenv.errors import DatasetCorruptError, UnknownDatasetError, UsageError
from shioenv_eval.leakage import Leakage, LeakLevel, find_leaks
from support.dataset_fakes import make, sample


def files(tmp_path: Path, train: list[str], test: list[str]) -> tuple[Path, Path]:
    for name, lines in (("train", train), ("test", test)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "train", tmp_path / "test"


def found(tmp_path: Path, train: list[str], test: list[str], threshold: float = 0.9) -> Leakage:
    return find_leaks(*files(tmp_path, train, test), threshold=threshold)


@pytest.mark.parametrize(
    ("train", "test", "level"),
    [
        ("ls -la documents", "ls -la documents", LeakLevel.EXACT),
        ("ls  -la   documents", "ls -la documents", LeakLevel.EXACT),
        ("ls -la documents", "ls -al documents", LeakLevel.REORDERED),
        ("ls -la documents", "ls documents -l -a", LeakLevel.REORDERED),
        ("sort -r a | head -n 3 -q", "sort -r a | head -q -n 3", LeakLevel.REORDERED),
        ("grep -rn error logs/app.log", "grep -rn errors logs/app.log", LeakLevel.NEAR),
        ("ls -la documents", "ls -la images", LeakLevel.FORM),
        ("cp a b", "mv a b", None),
        ("cat a && ls b", "ls b && cat a", None),
        ("sort a > b", "sort b > a", LeakLevel.FORM),
        ("head -n 5 a b", "head -n 77 c", LeakLevel.FORM),
        ("ls -la documents", "ls -lh documents/old", None),
    ],
)
def test_levels(tmp_path: Path, train: str, test: str, level: LeakLevel | None) -> None:
    result = found(tmp_path, [train], [test])
    assert [leak.level for leak in result.leaks] == ([] if level is None else [level])
    assert result.ok == (level is not LeakLevel.EXACT)


def test_a_start_directory_makes_a_difference_where_it_is_known(tmp_path: Path) -> None:
    def line(cwd: str) -> str:
        return json.dumps({"input": "x", "input_args": ["ls", "-l<ns>", "<ns>a"], "cwd": cwd})

    result = found(tmp_path, [line("/etc")], [line("/etc"), line("/home"), "ls -la"])
    assert [leak.level for leak in result.leaks] == [
        LeakLevel.EXACT,
        LeakLevel.REORDERED,
        LeakLevel.EXACT,
    ]


@pytest.mark.parametrize("form", ["text", "input", "record"])
def test_a_datasets_own_inputs_are_all_found_in_it(tmp_path: Path, form: str) -> None:
    make(tmp_path / "dataset", 30)
    records = list(read_records(tmp_path / "dataset"))
    assert all(record.input.startswith("cd /home/ubuntu; ") for record in records)
    lines = {
        "text": [record.input for record in records],
        "input": [json.dumps({"input": record.input}) for record in records],
        "record": (tmp_path / "dataset/data/00000.ndjson").read_text().splitlines(),
    }[form]
    _, test = files(tmp_path, [], lines)
    for result in (find_leaks(tmp_path / "dataset", test), find_leaks(test, tmp_path / "dataset")):
        assert result.count(LeakLevel.EXACT) == result.known_commands == 30
        assert not result.ok


def test_a_leading_cd_is_the_start_directory(tmp_path: Path) -> None:
    train = ["cd /etc; ls -l a", "cd ~; cat b"]
    test = ["ls -l a", "cd /etc; ls -l a", "cd /home; ls -l a", "cat b", "cd ~; cat b"]
    result = found(tmp_path, train, test)
    assert [(leak.test, leak.level) for leak in result.leaks] == [
        (0, LeakLevel.EXACT),
        (1, LeakLevel.EXACT),
        (2, LeakLevel.REORDERED),
        (4, LeakLevel.EXACT),
    ]


def test_a_line_that_is_nested_too_deeply_is_an_input_like_any_other(tmp_path: Path) -> None:
    line = '{"input": ' + "[" * 100_000
    assert found(tmp_path, [line], [line]).count(LeakLevel.EXACT) == 1


def test_the_strongest_and_most_similar_counts(tmp_path: Path) -> None:
    train = ["cat notes.txt2", "cat -n notes.txt", "cat notes.txt", "cat notes.tx"]
    result = found(tmp_path, train, ["cat notes.txt", "cat notes.txt3"], threshold=0.5)
    assert [(leak.level, leak.train) for leak in result.leaks] == [
        (LeakLevel.EXACT, 2),
        (LeakLevel.NEAR, 2),
    ]
    assert result.leaks[1].similarity == pytest.approx(2 * 13 / 27)


def test_numbers_add_up(tmp_path: Path) -> None:
    train = [f"echo word{number} {'x' * (number % 7)}" for number in range(5000)]
    train += ["ls -a", "wc -l < x"]
    test = ["echo word17 xxx", "ls -a", "ls -b", "stat x", "echo nothing like it at all"]
    result = found(tmp_path, train, test, threshold=0.95)
    document = result.to_json()
    assert document["train"] == 5002
    assert {name: document[name] for name in ("exact", "reordered", "near", "form", "clean")} == {
        "exact": 2, "reordered": 0, "near": 0, "form": 1, "clean": 2,
    }  # fmt: skip
    assert document["exact"] == 2
    assert document["known_commands"] == 4
    assert document["by_command"]["ls"] == {"test": 2, "given_away": 1}
    assert document["leaks"][0]["train"] == 17


def test_how_many_wait_to_be_compared_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = [f"{command} -a word{number}" for number in range(50) for command in ("ls", "cat")]
    paths = files(tmp_path, train, ["ls -a word777", "cat -a wort3", "ls -b", "df -a word7"])
    whole = find_leaks(*paths, threshold=0.8)
    compared: list[int] = []

    def counted(texts: list[str], others: list[str], threshold: float) -> object:
        compared.append(len(others))
        return nearest(texts, others, threshold)

    monkeypatch.setattr(leakage_module, "nearest", counted)
    monkeypatch.setattr(leakage_module, "BATCH", 30)
    assert find_leaks(*paths, threshold=0.8) == whole
    assert whole.count(LeakLevel.NEAR) == 2
    assert compared == [15, 15] * 3 + [5, 5]


def test_a_dataset_that_is_changed_or_unfinished_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "dataset", 30)
    _, test = files(tmp_path, [], ["ls"])
    manifest = tmp_path / "dataset/manifest.json"
    content = manifest.read_text()
    manifest.write_text(json.dumps({**json.loads(content), "count": 99}))
    with pytest.raises(UsageError, match="not finished: 30 of 99 records"):
        find_leaks(tmp_path / "dataset", test)
    manifest.write_text(content)
    shard = tmp_path / "dataset/data/00000.ndjson"
    shard.write_bytes(shard.read_bytes().replace(b'"exit_code":0', b'"exit_code":1', 1))
    with pytest.raises(DatasetCorruptError, match="was changed"):
        find_leaks(test, tmp_path / "dataset")


def test_misuse_is_refused(tmp_path: Path) -> None:
    train, test = files(tmp_path, ["ls"], [])
    with pytest.raises(UsageError, match="has no inputs"):
        find_leaks(train, test)
    with pytest.raises(UsageError, match="threshold"):
        find_leaks(train, train, threshold=0)
    with pytest.raises(UnknownDatasetError):
        find_leaks(tmp_path / "nothing", train)


def test_nearest_agrees_with_comparing_one_by_one() -> None:
    from rapidfuzz.distance import Indel

    texts = [f"ls {'a' * (number % 5)}{number}" for number in range(1100)]
    others = [f"ls {'b' * (number % 3)}{number * 7}" for number in range(1030)]
    best = nearest(texts[1020:1030] + texts[:2], others, 0.8)
    for text, one in zip(texts[1020:1030] + texts[:2], best, strict=True):
        scores = [Indel.normalized_similarity(text, other) for other in others]
        if one is None:
            assert max(scores) < 0.8 - 1e-9
        else:
            assert one[0] == pytest.approx(max(scores), abs=1e-6)
            assert scores[one[1]] == pytest.approx(max(scores))
    assert nearest([], ["a"], 0.5) == []
    assert nearest(["a"], [], 0.5) == [None]


def test_the_parts_of_a_split_give_nothing_away_but_similar_inputs(tmp_path: Path) -> None:
    inputs = (
        sample(word, letters, f"file{number}.txt", str(number))
        for number in range(6)
        for word in ("sort", "head", "wc", "uniq", "touch", "echo", "ls", "cat")
        for letters in ("-a", "-b", "-ab", "-ba", "-c", "-d", "-e")
    )
    make(tmp_path / "dataset", 336, stream=inputs)
    split(tmp_path / "dataset", tmp_path / "parts", Shares(test=0.25))
    found = find_leaks(tmp_path / "parts" / "train", tmp_path / "parts" / "test")
    for level in (LeakLevel.EXACT, LeakLevel.REORDERED, LeakLevel.FORM):
        assert found.count(level) == 0
