"""Compile the C programs of the SSH server."""

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
    # modules for the sshd of a system
    "ssh-names.so": (("ssh/names.c",), build.ON_SYSTEM),
    "ssh-passwords.so": (("ssh/passwords.c",), build.ON_SYSTEM),
    # programs that run next to that sshd
    "ssh-keeper": (("ssh/keeper.c",), ["-static"]),
    "ssh-session": (("ssh/session.c",), ["-static"]),
}
"""Programs of the SSH server."""


class NativeBuildHook(build.NativeBuildHook):  # type: ignore[name-defined, misc]
    """Programs that run next to an sshd."""

    native = "src/shioenv_serve/native"
    programs = PROGRAMS
    borrowed = MappingProxyType({"native_build.py": "../../scripts/native_build.py"})


if __name__ == "__main__":
    for path in build.compile_package(Path(__file__).resolve().parent, NativeBuildHook):
        print(path)
