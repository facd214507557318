"""A fake hub of models: repositories in a dictionary, behind the hub's protocol."""

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
            self._json({"url": f"http://{self.headers['Host']}/{name}", "name": name})
            return
        if parts[1] == "validate-yaml":
            self._json({"errors": [], "warnings": []})
            return
        kept = self.server.repositories["/".join(parts[2:4])]
        if parts[4] == "preupload":
            files = json.loads(body)["files"]
            self._json(
                {"files": [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                           for each in files]}
            )  # fmt: skip
            return
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                kept[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        url = f"http://{self.headers['Host']}/{'/'.join(parts[2:4])}"
        self._json({"success": True, "commitOid": COMMIT, "commitUrl": f"{url}/commit/{COMMIT}"})

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[0] == "api":
            name = "/".join(parts[2:4])
            if name in self.server.repositories:
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
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.repositories
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
