import gzip
import hashlib
import io
import itertools
import tarfile
import zipfile
from datetime import timedelta

import pytest

from shioenv.system.declare import declared_names, load_declaration
from shioenv.system.home import load_home
from shioenv.system.home_files import HomeEntry

NEEDED = (
    "documents/notes.txt", "documents/report.txt", "documents/index.html", "scripts/backup.sh",
    "scripts/deploy.sh", "scripts/main.py", "logs/app.log", "logs/syslog.log", "data/data.csv",
    "data/users.csv", "config/config.json", "config/settings.yaml", "archives/archive.tar",
    "archives/backup.tar.gz", "images/photo.png",
)  # fmt: skip


@pytest.fixture(scope="module")
def home() -> dict[str, HomeEntry]:
    return {entry.path: entry for entry in load_home(load_declaration())}


def test_it_has_60_to_120_files_of_less_than_a_megabyte(home: dict[str, HomeEntry]) -> None:
    files = [entry for entry in home.values() if entry.kind != "directory"]
    assert 60 <= len(files) <= 120
    assert sum(len(entry.data) for entry in files) < 1 << 20


def test_what_evaluation_inputs_rely_on_is_there(home: dict[str, HomeEntry]) -> None:
    assert [path for path in NEEDED if path not in home or not home[path].data] == []


def test_every_time_lies_in_the_six_months_before_the_instant(home: dict[str, HomeEntry]) -> None:
    instant = load_declaration().instant
    for entry in home.values():
        age = instant.timestamp() - entry.mtime
        assert 0 <= age <= timedelta(days=183).total_seconds(), entry.path


def test_every_kind_of_entry_occurs(home: dict[str, HomeEntry]) -> None:
    kinds = {entry.kind for entry in home.values()}
    assert kinds == {"file", "directory", "symlink", "fifo"}
    assert any(entry.holes for entry in home.values())
    assert any(entry.mode & 0o4000 for entry in home.values())
    assert len({(entry.owner, entry.group) for entry in home.values()}) > 4


def test_some_links_lead_somewhere_one_to_a_directory_and_one_nowhere(
    home: dict[str, HomeEntry],
) -> None:
    assert home["logs/archive"].target == "../archives"
    assert home["latest.log"].target in home
    assert home["config/current"].target.removeprefix("../") not in home


@pytest.mark.parametrize("mark", [" ", "'", "\n", "*", "é"])
def test_odd_names_occur(home: dict[str, HomeEntry], mark: str) -> None:
    assert any(mark in path for path in home)


def test_a_name_starts_with_a_dash(home: dict[str, HomeEntry]) -> None:
    assert any(path.rpartition("/")[2].startswith("-") for path in home)


def test_contents_are_worth_the_tools_that_read_them(home: dict[str, HomeEntry]) -> None:
    assert b"\r\n" in home["misc/crlf.txt"].data
    assert home["misc/utf16.txt"].data.startswith(b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        home["misc/latin1.txt"].data.decode()
    assert not home["data/no_newline.txt"].data.endswith(b"\n")
    assert max(len(line) for line in home["data/long_lines.txt"].data.splitlines()) > 2000
    lines = home["data/duplicates.txt"].data.splitlines()
    assert any(line == after for line, after in itertools.pairwise(lines))
    assert b"   \n" in home["data/spaces.txt"].data
    assert b"\n\n\n" in home["data/spaces.txt"].data
    words = home["documents/words_sorted.txt"].data.splitlines()
    others = home["documents/words_other.txt"].data.splitlines()
    assert words == sorted(words)
    assert others == sorted(others)
    assert set(words) & set(others)
    assert set(words) ^ set(others)


def test_archives_hold_what_lies_beside_them(home: dict[str, HomeEntry]) -> None:
    for name in ("archives/archive.tar", "archives/backup.tar.gz"):
        with tarfile.open(fileobj=io.BytesIO(home[name].data)) as archive:
            members = archive.getmembers()
            assert len(members) >= 4
            for member in members:
                stored = archive.extractfile(member)
                assert stored is not None
                assert stored.read() == home[member.name].data
    with zipfile.ZipFile(io.BytesIO(home["archives/site.zip"].data)) as bundle:
        assert bundle.testzip() is None
        assert bundle.read("documents/index.html") == home["documents/index.html"].data
    assert gzip.decompress(home["archives/app.log.1.gz"].data) == home["logs/app.log.1"].data
    with pytest.raises(EOFError):
        gzip.decompress(home["archives/broken.tar.gz"].data)


def test_the_bytes_are_the_same_every_time() -> None:
    def digest() -> str:
        return hashlib.sha256(repr(load_home(load_declaration())).encode()).hexdigest()

    assert digest() == digest()


def test_it_suits_every_shipped_system() -> None:
    for name in declared_names():
        assert load_home(load_declaration(name))


def test_entries_are_sorted_and_every_directory_precedes_what_is_in_it(
    home: dict[str, HomeEntry],
) -> None:
    seen: set[str] = set()
    for path in home:
        parent = path.rpartition("/")[0] or "."
        assert path == "." or parent in seen
        seen.add(path)
