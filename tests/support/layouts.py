"""Generated layers and layouts of container images."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

Layer: TypeAlias = Mapping[str, bytes | str | None]
"""By name: the content of a file, the target of a hard link, or None for a directory."""


def pack(path: Path, layer: Layer) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in layer.items():
            member = tarfile.TarInfo(name)
            member.mode, member.mtime = 0o755, 1_700_000_000
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, str):
                member.type, member.linkname = tarfile.LNKTYPE, content
            else:
                member.size = len(content)
            data = io.BytesIO(content) if isinstance(content, bytes) else None
            archive.addfile(member, data)
    return path


class Layout:
    """A generated OCI layout."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "blobs" / "sha256").mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, content: bytes, kind: str = "", **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.path / "blobs" / "sha256" / digest).write_bytes(content)
        known = {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}
        return {**known, **more}

    def image(self, *layers: bytes, architecture: str = "amd64") -> dict[str, Any]:
        config = self.blob(json.dumps({"architecture": architecture}).encode())
        manifest = {"config": config, "layers": [self.blob(layer) for layer in layers]}
        kind = "application/vnd.oci.image.manifest.v1+json"
        return self.blob(json.dumps(manifest).encode(), kind)

    def index(self, *manifests: dict[str, Any]) -> Path:
        (self.path / "index.json").write_text(json.dumps({"manifests": manifests}))
        return self.path
