"""A built system as one file: the same bytes, and the same digest wherever it is imported."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import OutputExistsError, RootfsTarError, UsageError
from shioenv.system.exporting import export_system
from shioenv.system.importing import import_system, pull_system
from shioenv.system.store import System, build_system, find_system
from support.layouts import pack

MACHINE = {
    **dict.fromkeys(
        ("usr/bin/bash", "usr/bin/uname", "usr/sbin/ip", "usr/sbin/nft"), b"#!/bin/true\n"
    ),
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n",
    "etc/group": b"root:x:0:\nadm:x:4:\nsudo:x:27:\nwww-data:x:33:\nutmp:x:43:\nusers:x:100:\n",
    "etc/hosts": b"",
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "first"))
    return build_system(rootfs_tar=pack(tmp_path / "base.tar", MACHINE), called="small")


@pytest.fixture
def file(small: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Export the system; from then on, the cache is another, empty one."""
    path = tmp_path / "small.oci.tar"
    export_system("small", path)
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "second"))
    return path


def test_an_export_has_the_same_bytes_and_gives_the_same_system(
    small: System, file: Path, tmp_path: Path
) -> None:
    imported = import_system(None, file).system
    assert (imported.name, imported.digest) == ("small", small.digest)
    assert dict(imported.index) == dict(small.index)
    assert imported.answers == small.answers
    assert list(imported.differences()) == []
    export_system("small", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == file.read_bytes()
    assert import_system(None, file).system.digest == small.digest, "it is there already"


def test_an_export_unpacks_to_an_oci_layout(small: System, file: Path, tmp_path: Path) -> None:
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path / "layout")
    assert import_system("other", tmp_path / "layout").system.digest == small.digest
    assert find_system("other").name == "other"


def test_a_pulled_system_has_the_digest_that_was_asked_for(small: System, file: Path) -> None:
    with pytest.raises(UsageError, match="the expected digest of small is unknown"):
        pull_system(str(file))
    with pytest.raises(RootfsTarError, match=f"{'0' * 64} was expected"):
        pull_system(str(file), digest="0" * 64)
    with pytest.raises(UsageError, match="invalid digest"):
        pull_system(str(file), digest="0")
    with pytest.raises(RootfsTarError, match="cannot be downloaded"):
        pull_system("http://127.0.0.1:9/small.tar", digest=small.digest)
    assert pull_system(str(file), digest=small.digest, name="pulled").name == "pulled"


def test_a_name_of_a_shipped_system_needs_the_digest_of_its_lock(file: Path) -> None:
    with pytest.raises(OutputExistsError, match="has another digest") as caught:
        import_system("debian-12", file)
    assert "shioenv system import debian-12-" in str(caught.value.hint)


def changed(file: Path, edit: Callable[[dict[str, Any]], None], layer: bytes | None = None) -> Path:
    """Rewrite an export with another configuration or first layer, and matching digests."""
    with tarfile.open(file) as archive:
        blobs = {
            member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
        }
    index = json.loads(blobs["index.json"])

    def blob(digest: str) -> bytes:
        return blobs["blobs/sha256/" + digest.removeprefix("sha256:")]

    def put(content: bytes, descriptor: dict[str, Any]) -> None:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        descriptor.update(digest=f"sha256:{digest}", size=len(content))

    manifest = json.loads(blob(index["manifests"][0]["digest"]))
    config = json.loads(blob(manifest["config"]["digest"]))
    edit(config["shioenv"])
    put(json.dumps(config).encode(), manifest["config"])
    if layer is not None:
        put(layer, manifest["layers"][0])
    put(json.dumps(manifest).encode(), index["manifests"][0])
    blobs["index.json"] = json.dumps(index).encode()
    with tarfile.open(file, "w") as archive:
        for name, content in blobs.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda part: part["proc"].update(version="Linux 9"), "was expected"),
        (lambda part: part["web"].update({"../../x": ""}), r"invalid name '../../x'"),
        (lambda part: part["proc"].update({"/etc/x": ""}), "invalid name '/etc/x'"),
        (lambda part: part["proc"].update(version="☃"), "not a valid export"),
        (lambda part: part.update(schema=2), "another version of ShIOEnv"),
        (lambda part: part.pop("answers"), "not a valid export"),
    ],
)
def test_a_changed_export_is_refused(
    file: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], None], said: str
) -> None:
    with pytest.raises(RootfsTarError, match=said):
        import_system(None, changed(file, edit))
    assert not list((tmp_path / "second" / "systems").glob("*"))


def test_a_layer_that_no_export_writes_is_refused(file: Path, tmp_path: Path) -> None:
    outside = pack(tmp_path / "outside.tar", {**MACHINE, "../../outside": b"x"})
    with pytest.raises(RootfsTarError, match="not the canonical tar"):
        import_system(None, changed(file, lambda part: None, outside.read_bytes()))
    with pytest.raises(RootfsTarError, match="first layer"):
        import_system(None, changed(file, lambda part: None, b"x" * 5000))


def test_a_truncated_export_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20_000])
    with pytest.raises(RootfsTarError):
        import_system(None, file)
