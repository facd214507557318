"""A hub: repositories in a dictionary, behind the protocol of the library `huggingface_hub`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

COMMIT = "0" * 39 + "1"


class _Hub(ThreadingHTTPServer):
    daemon_threads = True
    repositories: dict[str, dict[str, bytes]]
    large: dict[str, bytes]


class _Handler(BaseHTTPRequestHandler):
    server: _Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _give(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _json(self, document: Any) -> None:
        self._give(200, json.dumps(document).encode(), Content_Type="application/json")

    def do_POST(self) -> None:
        if not self.headers.get("Authorization"):
            self._give(401, b"{}", X_Error_Message="nobody said who asks")
            return
        body, parts = self._body(), self.path.strip("/").split("/")
        if parts[1] == "repos":
            said = json.loads(body)
            name = "/".join(filter(None, (said.get("organization"), said["name"])))
            self.server.repositories.setdefault(name, {})
            kind = "datasets/" if said.get("type") == "dataset" else ""
            self._json({"url": f"http://{self.headers['Host']}/{kind}{name}", "name": name})
            return
        if parts[1] == "validate-yaml":
            self._json({"errors": [], "warnings": []})
            return
        if parts[-3:] == ["lfs", "objects", "batch"]:
            self._json({"objects": [self._upload_of(each) for each in json.loads(body)["objects"]]})
            return
        kept = self.server.repositories["/".join(parts[2:4])]
        if parts[4] == "preupload":
            files = [(each["path"], each["path"].endswith(".parquet"))
                     for each in json.loads(body)["files"]]  # fmt: skip
            self._json(
                {"files": [{"path": path, "uploadMode": "lfs" if is_large else "regular",
                            "shouldIgnore": False} for path, is_large in files]}
            )  # fmt: skip
            return
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                kept[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "lfsFile":
                kept[entry["value"]["path"]] = self.server.large[entry["value"]["oid"]]
            elif entry["key"] == "deletedFile":
                del kept[entry["value"]["path"]]
        url = f"http://{self.headers['Host']}/{'/'.join(parts[2:4])}"
        self._json({"success": True, "commitOid": COMMIT, "commitUrl": f"{url}/commit/{COMMIT}"})

    def _upload_of(self, given: dict[str, Any]) -> dict[str, Any]:
        url = f"http://{self.headers['Host']}/large/{given['oid']}"
        return {**given, "actions": {"upload": {"href": url, "header": {}}}}

    def do_PUT(self) -> None:
        body, digest = self._body(), self.path.rpartition("/")[2]
        assert hashlib.sha256(body).hexdigest() == digest
        self.server.large[digest] = body
        self._give(200, b"")

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[0] == "api":
            name = "/".join(parts[2:4])
            if name in self.server.repositories and "tree" in parts:
                kept = self.server.repositories[name]
                self._json([{"type": "file", "path": path, "oid": "0" * 40, "size": len(data)}
                            for path, data in kept.items()])  # fmt: skip
            elif name in self.server.repositories:
                self._json({"id": name, "modelId": name, "sha": COMMIT, "siblings": []})
            else:
                self._give(404, b"{}", X_Error_Code="RepoNotFound")
            return
        file = self.server.repositories.get("/".join(parts[:2]), {}).get("/".join(parts[4:]))
        if file is None:
            self._give(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
            return
        digest = hashlib.sha1(file).hexdigest()
        self._give(200, file, ETag=f'"{digest}"', X_Repo_Commit=COMMIT)

    def do_HEAD(self) -> None:
        self.do_GET()


@contextmanager
def hub() -> Iterator[tuple[str, dict[str, dict[str, bytes]]]]:
    """Run the hub; yield its address, and the contents of its repositories by path."""
    server = _Hub(("127.0.0.1", 0), _Handler)
    server.repositories = {}
    server.large = {}
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.repositories
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
