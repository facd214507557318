"""Systems imported from tarballs and container images, and the cache that holds them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shioenv.errors import (
    OutputExistsError,
    RootfsTarError,
    SystemCorruptError,
    SystemNotBuiltError,
    SystemStorageError,
    UsageError,
)
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for, notes_on
from shioenv.system.importing import ImportedSystem, import_system, unread
from shioenv.system.store import (
    System,
    find_system,
    list_systems,
    prune_systems,
)
from support.layouts import Layout, pack

MACHINE = {
    "usr/bin/bash": b"#!/bin/true\n",
    "usr/bin/uname": b"#!/bin/true\n",
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": b"root:x:0:\nadm:x:4:\nsudo:x:27:\nwww-data:x:33:\nutmp:x:43:\nusers:x:100:\n",
    "etc/hosts": b"",
    "etc/os-release": b'ID=fedora\nVERSION_ID="40"\n',
    "var/log/old": b"",
    "tmp/x": b"",
}
"""A machine without `ip` and `nft`, with files that are left out."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHIOENV_CACHE", str(path))
        yield path


@pytest.fixture(scope="module")
def web(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> ImportedSystem:
    return import_system("web", machine(tmp_path_factory.mktemp("web") / "machine.tar"))


def machine(path: Path) -> Path:
    pack(path, MACHINE)
    with tarfile.open(path, "a") as archive:
        device = tarfile.TarInfo("dev/sda")
        device.type = tarfile.BLKTYPE
        archive.addfile(device)
    return path


def test_a_tarball_becomes_a_system_under_its_name(cache: Path, web: ImportedSystem) -> None:
    system = find_system("web")
    assert web.system.digest == system.digest
    assert system.declaration.distribution.os_family == "fedora-40"
    assert dict(web.left_out.counts) == {
        "devices and pipes": 1,
        "files in /tmp": 1,
        "logs, caches and files of the builder": 1,
    }
    assert [line.rpartition(" ")[2] for line in unread(system)] == ["ip)", "nft)"]
    assert not [path for path in cache.iterdir() if path.name.startswith(".import-")]


def test_a_name_that_is_taken_is_refused(web: ImportedSystem, tmp_path: Path) -> None:
    tar = machine(tmp_path / "machine.tar")
    for name in ("web", "debian-12"):
        with pytest.raises(OutputExistsError, match="already"):
            import_system(name, tar)
    with pytest.raises(UsageError, match="the name"):
        import_system("../web", tar)


def test_an_image_of_layers_becomes_a_system(web: ImportedSystem, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    upper = pack(tmp_path / "upper.tar", {"opt/hello": b"hello\n", "var/log/.wh.old": b""})
    lower = machine(tmp_path / "lower.tar").read_bytes()
    image = layout.image(lower, upper.read_bytes())
    imported = import_system("image", layout.index(image))
    assert imported.system.declaration.title.endswith(image["digest"])
    assert imported.system.content("/opt/hello") == b"hello\n"
    assert web.system.content("/opt/hello") is None
    counted = dict(imported.left_out.counts)
    assert counted == {"devices and pipes": 1, "files in /tmp": 1}


def test_archives_of_images_are_told_from_root_filesystems(cache: Path, tmp_path: Path) -> None:
    tar = pack(tmp_path / "image.tar", dict.fromkeys(("oci-layout", "index.json"), b""))
    with pytest.raises(RootfsTarError, match="OCI layout"):
        import_system("other", tar)
    with pytest.raises(RootfsTarError, match="is not an OCI layout"):
        import_system("other", tmp_path)
    with pytest.raises(RootfsTarError, match="no /bin/bash"):
        import_system("other", pack(tmp_path / "other.tar", {"bin/sh": b""}))


def test_commands_that_the_system_lacks_are_not_drawn(web: ImportedSystem) -> None:
    names = [grammar.name for grammar in grammars_for(web.system, Drawing())]
    assert {"cd", "echo", "uname"} <= set(names)
    assert "tar" not in names
    (note,) = notes_on(web.system, Drawing())
    assert note.startswith("note: skipping commands that web lacks: ")
    assert "tar" in note
    with pytest.raises(UsageError, match="the system web lacks tar"):
        grammars_for(web.system, Drawing(commands=("tar", "cd")))


def test_what_no_name_stands_for_is_pruned(cache: Path, web: ImportedSystem) -> None:
    prune_systems()
    (cache / ".import-killed").mkdir()
    (cache / "bases" / "bookworm-0123456789abcdef.tar").write_bytes(b"x" * 10)
    forgotten = cache / "systems" / ("0" * 64)
    forgotten.mkdir()
    (forgotten / "system.json").write_text(json.dumps({"a": 1}))
    removed = {one.path.name: one.bytes for one in prune_systems()}
    assert removed == {
        ".import-killed": 0, "bookworm-0123456789abcdef.tar": 10, "0" * 64: 8,
    }  # fmt: skip
    assert find_system("web").digest == web.system.digest
    assert prune_systems() == ()


def test_damage_absence_and_missing_rights_are_told_apart(
    cache: Path, web: ImportedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {name: cache / "names" / f"{name}.json" for name in ("web", "torn", "closed")}
    names["torn"].write_text("{")
    names["closed"].write_bytes(names["web"].read_bytes())
    real = Path.read_text

    def read_text(path: Path, *args: object, **options: object) -> str:
        if path == names["closed"]:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", read_text)
    found = dict(list_systems())
    assert isinstance(found["web"], System)
    assert isinstance(found["torn"], SystemCorruptError)
    assert isinstance(found["closed"], SystemStorageError)
    assert isinstance(found["debian-12"], SystemNotBuiltError)
    with pytest.raises(SystemStorageError):  # a name that cannot be read may need anything
        prune_systems()
    names["closed"].unlink()
    with pytest.raises(SystemCorruptError):
        prune_systems()
    names["torn"].unlink()
    assert web.system.path.is_dir()
