"""Compile the C programs of microVMs."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType, ModuleType


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
    "shioenv-guest": (
        (
            *("guest/*.c", "around/configuration.c", "around/scan.c", "around/sha256.c"),
            "inside/directory.c",
        ),
        ["-static", "-Wl,--build-id=none"],
    ),
    "shioenv-guest-sandbox": (
        build.SUPERVISOR,
        ["-static", "-pthread", "-Wl,--build-id=none", *build.FORTIFIED],
    ),
}
"""Programs of microVMs, which have no library. Most of their sources are the core's."""


class NativeBuildHook(build.NativeBuildHook):  # type: ignore[name-defined, misc]
    """Programs of microVMs, compiled from sources of the core too."""

    native = "src/shioenv_backends/native"
    programs = PROGRAMS
    core = "core-native"
    borrowed = MappingProxyType(
        {
            "native_build.py": "../../scripts/native_build.py",
            "core-native/around": "../shioenv/src/shioenv/native/around",
            "core-native/inside": "../shioenv/src/shioenv/native/inside",
            "core-native/library": "../shioenv/src/shioenv/native/library",
        }
    )


if __name__ == "__main__":
    for path in build.compile_package(Path(__file__).resolve().parent, NativeBuildHook):
        print(path)
