"""Layers of a container image as one tarball, by the OCI image specification."""

from __future__ import annotations

import hashlib
import importlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import RootfsTarError
from shioenv.system.oci import MOST_BYTES, MOST_LAYERS, find_image, is_layout, plain_tar, write_flat
from support.layouts import Layer, Layout, pack


def flat(tmp_path: Path, *layers: Layer) -> dict[str, bytes | None]:
    packed = [pack(tmp_path / f"{number}.tar", layer) for number, layer in enumerate(layers)]
    write_flat(packed, tmp_path / "flat.tar")
    found: dict[str, bytes | None] = {}
    with tarfile.open(tmp_path / "flat.tar") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            found[member.name.removeprefix("./")] = content.read() if content else None
    return found


def test_a_later_layer_stands_over_an_earlier_one(tmp_path: Path) -> None:
    lower: Layer = {"etc": None, "etc/a": b"1", "etc/b": b"2"}
    upper: Layer = {"etc/b": b"3", "etc/c": "etc/a"}
    assert flat(tmp_path, lower, upper) == {
        "etc": None, "etc/a": b"1", "etc/b": b"3", "etc/c": b"1",
    }  # fmt: skip


def test_whiteouts_are_about_lower_layers_alone(tmp_path: Path) -> None:
    lower: Layer = {"a": None, "a/x": b"", "a/y": None, "a/y/z": b"", "b": b"", "ab": b""}
    upper: Layer = {"a/new": b"1", "a/.wh..wh..opq": b"", ".wh.b": b"", "b": b"2"}
    assert flat(tmp_path, lower, upper) == {"a": None, "a/new": b"1", "ab": b"", "b": b"2"}
    assert flat(tmp_path, lower, {"./.wh.a": b""}) == {"ab": b"", "b": b""}


def test_a_file_in_place_of_a_directory_takes_what_was_in_it(tmp_path: Path) -> None:
    assert flat(tmp_path, {"a": None, "a/x": b""}, {"a": b"1"}) == {"a": b"1"}


def test_a_hard_link_keeps_what_a_later_layer_removes(tmp_path: Path) -> None:
    lower: Layer = {"a": b"1", "b": "a"}
    assert flat(tmp_path, lower, {".wh.a": b""}) == {"b": b"1"}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"../x": b""}, "a path outside the root"),
        ({"a/../../.wh.x": b""}, "a path outside the root"),
        ({"x": "gone"}, "a hard link to 'gone', which does not exist"),
        ({"a": None, "x": "a"}, "a hard link to 'a'"),
    ],
)
def test_hostile_layers_are_refused(tmp_path: Path, layer: Layer, message: str) -> None:
    with pytest.raises(RootfsTarError, match=message):
        flat(tmp_path, {"x": b""}, layer)


def test_a_layer_that_is_no_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(b"junk" * 1000)
    with pytest.raises(RootfsTarError, match="layer 0 cannot be read as a tar"):
        write_flat([tmp_path / "0.tar"], tmp_path / "flat.tar")


def test_hard_links_count_as_files(tmp_path: Path) -> None:
    big = tarfile.TarInfo("big")
    big.size = 1 << 30
    layer = tmp_path / "0.tar"
    with layer.open("wb") as file:
        file.write(big.tobuf())
        file.truncate(len(big.tobuf()) + big.size)  # a hole
    links = pack(tmp_path / "1.tar", {str(number): "big" for number in range(MOST_BYTES >> 30)})
    with pytest.raises(RootfsTarError, match="files of more than"):
        write_flat([layer, links], tmp_path / "flat.tar")
    assert not (tmp_path / "flat.tar").exists()


@pytest.mark.parametrize("how", ["gzip", "bz2", "lzma", "zstandard"])
def test_a_compressed_layer_is_unpacked_up_to_a_bound(tmp_path: Path, how: str) -> None:
    content = bytes(1 << 22)
    packed = tmp_path / "packed"
    packed.write_bytes(importlib.import_module(how).compress(content))
    (tmp_path / "work").mkdir()
    plain, _ = plain_tar(packed, tmp_path / "work", len(content))
    assert plain.read_bytes() == content
    with pytest.raises(RootfsTarError, match="unpacks to more than 4,194,303 bytes"):
        plain_tar(packed, tmp_path / "work", len(content) - 1)
    assert plain.stat().st_size < len(content)
    packed.write_bytes(packed.read_bytes()[:-8])
    with pytest.raises(RootfsTarError, match="cannot be decompressed"):
        plain_tar(packed, tmp_path / "work", len(content))


@pytest.mark.parametrize("layer", ["x", 1, None, {}, {"digest": "sha256:../../../etc/passwd"}])
def test_layers_are_checked_before_they_are_used(tmp_path: Path, layer: Any) -> None:
    layout = Layout(tmp_path / "image")
    config = layout.blob(b"{}")
    if isinstance(layer, dict):
        layer = {"mediaType": "nondistributable", **layer}
    manifest = json.dumps({"config": config, "layers": [layer]}).encode()
    kind = "application/vnd.oci.image.manifest.v1+json"
    with pytest.raises(RootfsTarError, match="not a SHA-256"):
        find_image(layout.index(layout.blob(manifest, kind)))


def test_a_kind_that_is_no_text_is_of_no_image(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    with pytest.raises(RootfsTarError, match="contains no image"):
        find_image(layout.index({**layout.image(b"one"), "mediaType": []}))


def test_the_image_of_the_architecture_is_found_behind_an_index(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    ours, arm = layout.image(b"one", b"two"), layout.image(b"x", architecture="arm64")
    inner = {"manifests": [ours, arm]}
    kind = "application/vnd.oci.image.index.v1+json"
    path = layout.index(layout.blob(json.dumps(inner).encode(), kind))
    assert is_layout(path)
    found = find_image(path)
    assert found.digest == ours["digest"]
    assert found.layers == tuple(
        f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in (b"one", b"two")
    )


def test_layouts_that_are_not_sound_are_refused(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "image")
    with pytest.raises(RootfsTarError, match="contains no image for amd64"):
        find_image(layout.index())
    ours = layout.image(b"one")
    with pytest.raises(RootfsTarError, match="contains 2 images for amd64"):
        find_image(layout.index(ours, layout.image(b"two")))
    many = layout.image(*(b"%d" % number for number in range(MOST_LAYERS + 1)))
    with pytest.raises(RootfsTarError, match="more than 128"):
        find_image(layout.index(many))
    for digest in ("sha256:../../../../etc/passwd", "md5:00", None):
        with pytest.raises(RootfsTarError, match="not a SHA-256"):
            find_image(layout.index({**ours, "digest": digest}))
    layer = layout.path / "blobs" / "sha256" / hashlib.sha256(b"one").hexdigest()
    layer.write_bytes(b"two")
    with pytest.raises(RootfsTarError, match="another size or SHA-256"):
        find_image(layout.index(ours))
    layer.unlink()
    layer.symlink_to("/dev/zero")
    with pytest.raises(RootfsTarError, match="a device"):
        find_image(layout.index(ours))
