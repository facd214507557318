"""Locked packages from hostile mirrors on loopback, from snapshots and from directories."""

from __future__ import annotations

import hashlib
import http.server
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shioenv.errors import SystemBuildError, SystemDeclarationError
from shioenv.system import packages
from shioenv.system.packages import (
    Lock,
    Package,
    format_lock,
    obtain,
    parse_lock,
    write_repository,
)

CONTENTS = {"bash": b"shell" * 5000, "patch": b"diff" * 3000}


def line(name: str, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    return f"{name} 1.0-1 amd64 {len(content)} {digest} pool/main/{name[0]}/{name}_1.0-1_amd64.deb"


LINES = tuple(line(name, content) for name, content in CONTENTS.items())

Serve = Callable[[http.server.BaseHTTPRequestHandler, bytes], None]


def whole(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def gone(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_error(404)


def altered(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    whole(handler, content[:-1] + b"x")


def longer(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    whole(handler, content + b"x")


def shorter(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    whole(handler, content[:-1])


def elsewhere(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(302)
    handler.send_header("Location", "file:///etc/passwd")
    handler.end_headers()


def silent(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[:100])
    handler.wfile.flush()
    handler.rfile.read(1)  # until the client gives up


class Mirror:
    """A server of the packages that answers each request by `serve`, and counts them."""

    def __init__(self) -> None:
        self.serve: Serve = whole
        self.ranges: list[str | None] = []
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror.ranges.append(self.headers.get("Range"))
                name = self.path.rpartition("/")[2].partition("_")[0]
                mirror.serve(self, CONTENTS[name])

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/debian/"


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    made = Mirror()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def snapshot() -> Iterator[Mirror]:
    made = Mirror()
    yield made
    made.server.shutdown()
    made.server.server_close()


def lock(*snapshots: str) -> Lock:
    return Lock(schema=1, digest="0" * 64, snapshots=snapshots, packages=LINES)


def get(
    tmp_path: Path, locked: Lock, *addresses: str, directory: Path | None = None
) -> dict[Package, Path]:
    return obtain(locked, addresses, tmp_path / "store", directory, {}, lambda line: None)


def names(files: dict[Package, Path]) -> dict[str, bytes]:
    return {package.name: file.read_bytes() for package, file in files.items()}


def test_packages_are_kept_for_the_next_build(tmp_path: Path, mirror: Mirror) -> None:
    assert names(get(tmp_path, lock(), mirror.address)) == CONTENTS
    asked = len(mirror.ranges)
    assert names(get(tmp_path, lock(), mirror.address)) == CONTENTS
    assert len(mirror.ranges) == asked


def test_a_kept_package_that_was_changed_is_downloaded_again(
    tmp_path: Path, mirror: Mirror
) -> None:
    first, _ = get(tmp_path, lock(), mirror.address).values()
    first.write_bytes(first.read_bytes()[:-1] + b"x")
    assert names(get(tmp_path, lock(), mirror.address)) == CONTENTS


@pytest.mark.parametrize("serve", [gone, altered, longer, shorter, elsewhere, silent])
def test_what_a_mirror_does_not_serve_comes_from_the_snapshot(
    tmp_path: Path,
    mirror: Mirror,
    snapshot: Mirror,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "_PATIENCE", 0.2)
    mirror.serve = serve
    assert names(get(tmp_path, lock(snapshot.address), mirror.address)) == CONTENTS


@pytest.mark.parametrize("serve", [gone, altered, longer, shorter, elsewhere])
def test_packages_that_nobody_serves_are_listed_with_the_ways_out(
    tmp_path: Path, mirror: Mirror, serve: Serve
) -> None:
    mirror.serve = lambda handler, content: (serve if content[:1] == b"d" else whole)(
        handler, content
    )
    with pytest.raises(SystemBuildError, match="1 of 2 locked packages") as caught:
        get(tmp_path, lock(), mirror.address)
    assert "patch 1.0-1: 127.0.0.1" in caught.value.message
    assert "bash" not in caught.value.message
    assert "--packages DIR" in str(caught.value.hint)
    assert "--unlocked" in str(caught.value.hint)
    assert not list((tmp_path / "store").glob("*.part"))


def test_a_download_that_breaks_off_is_resumed(tmp_path: Path, mirror: Mirror) -> None:
    def breaks_off(handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        begin = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
        handler.send_response(206 if begin else 200)
        handler.send_header("Content-Length", str(len(content) - begin))
        handler.end_headers()
        handler.wfile.write(content[begin : begin + len(content) // 2 + 1])

    mirror.serve = breaks_off
    assert names(get(tmp_path, lock(), mirror.address)) == CONTENTS
    halves = {f"bytes={len(content) // 2 + 1}-" for content in CONTENTS.values()}
    assert halves <= set(mirror.ranges)


def test_packages_of_a_directory_may_have_any_names(tmp_path: Path, mirror: Mirror) -> None:
    directory = tmp_path / "debs"
    directory.mkdir()
    (directory / "one").write_bytes(CONTENTS["bash"])
    (tmp_path / "two").write_bytes(CONTENTS["patch"])
    (directory / "link.deb").symlink_to(tmp_path / "two")
    os.mkfifo(directory / "pipe.deb")
    assert names(get(tmp_path, lock(), mirror.address, directory=directory)) == CONTENTS
    assert mirror.ranges == []


def test_a_directory_without_a_package_is_refused(tmp_path: Path, mirror: Mirror) -> None:
    (tmp_path / "bash_1.0-1_amd64.deb").write_bytes(CONTENTS["bash"][:-1] + b"x")
    (tmp_path / "patch_1.0-1_amd64.deb").write_bytes(CONTENTS["patch"])
    with pytest.raises(SystemBuildError, match=r"1 of 2 .*\n  bash 1.0-1: not there"):
        get(tmp_path, lock(), mirror.address, directory=tmp_path)


def test_a_directory_of_the_host_can_be_a_mirror(tmp_path: Path) -> None:
    for name, content in CONTENTS.items():
        path = tmp_path / "mirror" / "pool/main" / name[0] / f"{name}_1.0-1_amd64.deb"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert names(get(tmp_path, lock(), str(tmp_path / "mirror"))) == CONTENTS


def test_a_lock_is_read_as_it_was_written() -> None:
    locked = lock("http://snapshot.test/debian/20260101T000000Z/")
    assert parse_lock(format_lock("mine", locked), "mine.lock") == locked
    assert [package.name for package in locked.files] == ["bash", "patch"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (("pool/main/b", "../../etc"), r"\$.packages\[0\]"),
        (("pool/main/b", "/etc"), r"\$.packages\[0\]"),
        (("1.0-1 amd64", "1.0$(x) amd64"), r"\$.packages\[0\]"),
        (('digest = "00', 'digest = "zz'), r"\$.digest"),
        (("schema = 1", "schema = 2"), r"\$.schema"),
        (("http://", "file://"), r"\$.snapshots\[0\]"),
        (("schema = 1", "schema = 1\nother = 2"), r"\$.other"),
    ],
)
def test_a_faulty_lock_is_refused_with_the_place(change: tuple[str, str], place: str) -> None:
    text = format_lock("mine", lock("http://snapshot.test/"))
    assert change[0] in text
    with pytest.raises(SystemDeclarationError, match=place):
        parse_lock(text.replace(*change, 1), "mine.lock")


def test_every_user_may_read_the_repository_that_apt_installs_from(tmp_path: Path) -> None:
    """apt runs as a user who may not enter the caller's home or read the caller's files."""
    root, store = tmp_path / "root", tmp_path / "store"
    (root / "DEBIAN").mkdir(parents=True)
    control = "Package: bash\nVersion: 1.0-1\nArchitecture: all\nMaintainer: a\nDescription: b\n"
    (root / "DEBIAN/control").write_text(control)
    store.mkdir(mode=0o700)
    made = store / "bash.deb"
    before = os.umask(0o077)
    try:
        subprocess.run(["dpkg-deb", "--build", root, made], check=True, capture_output=True)
        made.chmod(0o600)
        directory = tmp_path / "repository"
        directory.mkdir()
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        package = Package("bash", "1.0-1", "all", made.stat().st_size, digest, "pool/bash.deb")
        source = write_repository({package: made}, directory, "bookworm")
    finally:
        os.umask(before)
    assert str(directory) in source
    assert {entry.name for entry in directory.iterdir()} >= {"Packages", "Release"}
    for entry in [directory, *directory.iterdir()]:
        assert entry.stat().st_mode & 0o004, entry
        assert entry.stat().st_nlink == 1 or entry.is_dir()
