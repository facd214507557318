import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shioenv.system import bootstrap
from shioenv.system.bootstrap import apt_sources, mmdebstrap_command
from shioenv.system.declare import load_declaration

DEBIAN = load_declaration("debian-12").distribution


def host(etc: Path, os_release: str, **files: str) -> Path:
    (etc / "apt" / "sources.list.d").mkdir(parents=True)
    (etc / "os-release").write_text(os_release)
    for name, text in files.items():
        (etc / "apt" / "sources.list.d" / name.replace("_", ".")).write_text(text)
    return etc


BOOKWORM = 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="x"\n'


def test_a_hosts_own_mirror_is_used_with_its_key(tmp_path: Path) -> None:
    etc = host(
        tmp_path,
        BOOKWORM,
        debian_sources="""# comment
Types: deb deb-src
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://other.test
Suites: nodistro
Components: main
""",
    )
    assert apt_sources(DEBIAN, etc) == [
        "deb [signed-by=/usr/share/keyrings/k.gpg] http://mirror.test/debian bookworm main",
        "deb [signed-by=/usr/share/keyrings/k.gpg] http://mirror.test/debian bookworm-updates main",
    ]


def test_one_line_sources_are_read_too(tmp_path: Path) -> None:
    etc = host(tmp_path, BOOKWORM)
    (etc / "apt" / "sources.list").write_text(
        "deb [arch=amd64 trusted=yes] http://a.test/d bookworm main non-free # own\n"
        "deb-src http://a.test/d bookworm main\n#deb http://b.test/d bookworm main\n"
        "deb cdrom:[x]/ bookworm main\n"
    )
    assert apt_sources(DEBIAN, etc) == ["deb [trusted=yes] http://a.test/d bookworm main"]


@pytest.mark.parametrize("kind", ["file", "copy"])
def test_a_directory_of_the_host_is_copied_from(kind: str, tmp_path: Path) -> None:
    """mmdebstrap cannot install from a file: source whose directory is missing in the new root."""
    etc = host(tmp_path, BOOKWORM, x_list=f"deb {kind}:/srv/debian bookworm main\n")
    assert apt_sources(DEBIAN, etc) == ["deb copy:/srv/debian bookworm main"]


def test_another_release_of_the_same_family_lends_its_mirror(tmp_path: Path) -> None:
    etc = host(
        tmp_path,
        "ID=debian\nVERSION_CODENAME=trixie\n",
        x_list="deb http://m.test/debian trixie main\n"
        "deb http://m.test/debian-security trixie-security main\n",
    )
    assert apt_sources(DEBIAN, etc) == [
        "deb http://m.test/debian bookworm main",
        "deb http://m.test/debian-security bookworm-security main",
    ]


def test_a_host_of_another_family_uses_the_declared_mirrors(tmp_path: Path) -> None:
    etc = host(
        tmp_path, "ID=ubuntu\nVERSION_CODENAME=noble\n", x_list="deb http://u.test noble main\n"
    )
    assert apt_sources(DEBIAN, etc) == list(DEBIAN.mirrors)
    assert apt_sources(DEBIAN, tmp_path / "nothing") == list(DEBIAN.mirrors)


def test_a_disabled_source_is_not_used(tmp_path: Path) -> None:
    text = "Enabled: no\nTypes: deb\nURIs: http://m.test\nSuites: bookworm\nComponents: main\n"
    assert apt_sources(DEBIAN, host(tmp_path, BOOKWORM, x_sources=text)) == list(DEBIAN.mirrors)


@pytest.mark.parametrize(("user", "mode"), [(0, "root"), (1000, "unshare")])
def test_root_and_others_build_in_their_own_way(
    monkeypatch: pytest.MonkeyPatch, user: int, mode: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    command = mmdebstrap_command(DEBIAN, Path("/x/base.tar"), ["deb http://m.test bookworm main"])
    assert f"--mode={mode}" in command
    assert command[-3:] == ["bookworm", "/x/base.tar", "deb http://m.test bookworm main"]
    assert any(item.startswith("--customize-hook=") and "localedef" in item for item in command)
    assert any(item.startswith("--include=") and ",cpio," in item for item in command)


def test_ctrl_c_while_mmdebstrap_starts_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        bootstrap.run_mmdebstrap(["sleep", "60"], 0, tmp_path, print)
    assert started[0].returncode == -signal.SIGTERM
