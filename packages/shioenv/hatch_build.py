"""Compile the C programs of the core, and make its long description of the front page."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def _shared() -> ModuleType:
    """Import the module `native_build`: in the clone from `scripts`, elsewhere from this
    directory.
    """
    here = Path(__file__).resolve().parent
    places = (here / "native_build.py", here.parents[1] / "scripts/native_build.py")
    spec = spec_from_file_location("native_build", next(filter(Path.exists, places)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = _shared()

PROGRAMS = {
    # what is called is what is written
    "preload.so": (("inside/*.c",), [*build.ON_SYSTEM, "-fno-builtin"]),
    "shioenv-sandbox": (
        build.SUPERVISOR,
        [
            *("-static-pie", "-fPIE", "-pthread", "-Wl,-z,relro,-z,now", "-Wl,--build-id=none"),
            *build.FORTIFIED,
        ],
    ),
}
"""Programs of the sandbox in namespaces."""

BORROWED = {
    "native_build.py": "../../scripts/native_build.py",
    "FRONT.md": "../../README.md",
    "CHANGELOG.md": "../../CHANGELOG.md",
    "CITATION.cff": "../../CITATION.cff",
}


class NativeBuildHook(build.NativeBuildHook):  # type: ignore[name-defined, misc]
    """The core's programs."""

    native = "src/shioenv/native"
    programs = PROGRAMS
    borrowed = BORROWED


class LongDescription(MetadataHookInterface):
    """Sets the project's long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Make links to the files of this version in the project's repository."""
        readme = build.find(Path(self.root), "FRONT.md", BORROWED)
        repository = metadata.get("urls", {}).get("Repository")
        text = build.long_description(readme.read_text("utf-8"), repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


if __name__ == "__main__":
    for path in build.compile_package(Path(__file__).resolve().parent, NativeBuildHook):
        print(path)
