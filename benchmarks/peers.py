"""Other ways to run an input on a clean system, as installed on this host."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spawner import Overlay, Spawner

TEXT = "touch /home/x; ls /home"
"""The common input. Its output has a line `x`, and one only where the state was clean."""

_BASH = ("bash", "--norc", "--noprofile", "-c", TEXT)
_SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Peer:
    """`failure` gives the reason why it cannot be measured; None where it can."""

    name: str
    command: tuple[str, ...] = ()
    overlay: Overlay | None = None
    failure: str | None = None

    def seconds(self, spawner: Spawner) -> float:
        """Time the input. RuntimeError where its result is not that of a clean system."""
        done = spawner.spawn(self.command, {"PATH": _SEARCH}, "/", self.overlay)
        if done.status or "x" not in done.output.split():
            raise RuntimeError(_reason(done.output) or f"exit status {done.status}")
        return done.seconds


def none(reason: str) -> Iterator[Peer]:
    """Yield the reason why none can be measured."""
    yield Peer("other sandboxes", failure=reason)


def _reason(output: str) -> str:
    lines = output.strip().splitlines()
    return re.sub(r"\s+", " ", lines[-1])[:90] if lines else ""


def peers(root: Path, work: Path, spawner: Spawner) -> Iterator[Peer]:
    """Yield all of them, each tried once. `root` is a plain copy of the system, `work` a
    directory."""
    lower = str(root)
    for path in (bundle := work / "bundle", bundle / "rootfs", work / "layers", work / "merged"):
        path.mkdir()
    (bundle / "config.json").write_text(json.dumps(_oci_configuration()))
    overlay = Overlay(lower, str(work / "layers"), str(bundle / "rootfs"))
    # A shell that mounts, and exec at its end, as in hand-written scripts.
    script = (
        f"mount -t tmpfs tmpfs {work}/layers && mkdir {work}/layers/u {work}/layers/w && "
        f"mount -t overlay overlay -o lowerdir={lower},upperdir={work}/layers/u,"
        f"workdir={work}/layers/w {work}/merged && mount -t proc proc {work}/merged/proc && "
        f'exec chroot {work}/merged bash --norc --noprofile -c "$0"'
    )
    apart = ("unshare", "--mount", "--pid", "--fork", "--ipc", "--uts", "--net")
    limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=800:800")
    podman = ("podman", "run", "--rm", "--network", "none", *limits)
    found = (
        (
            "unshare, overlay mounted by a script",
            ("unshare", *apart, "sh", "-c", script, TEXT),
            None,
        ),
        (
            "bubblewrap",
            (
                *("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", lower, "/"),
                *(
                    "--tmpfs",
                    "/home",
                    "--tmpfs",
                    "/tmp",
                    "--proc",
                    "/proc",
                    "--dev",
                    "/dev",
                    *_BASH,
                ),
            ),
            None,
        ),
        (
            "nsjail",
            (
                *("nsjail", "--mode", "o", "--quiet", "--disable_rlimits", "--chroot", lower),
                *("--tmpfsmount", "/home", "--tmpfsmount", "/tmp", "--"),
                *("/bin/bash", *_BASH[1:]),
            ),
            None,
        ),
        ("crun", ("crun", "run", "--bundle", str(bundle), "shioenv-bench"), overlay),
        ("runc", ("runc", "run", "--bundle", str(bundle), "shioenv-bench"), overlay),
        ("podman (crun)", (*podman, "--runtime", "crun", "--rootfs", f"{lower}:O", *_BASH), None),
        ("podman (runc)", (*podman, "--runtime", "runc", "--rootfs", f"{lower}:O", *_BASH), None),
        (
            "systemd-nspawn --volatile=overlay",
            (
                *("systemd-nspawn", "--quiet", f"--directory={lower}", "--volatile=overlay"),
                *("--register=no", "--keep-unit", "--private-network", "--pipe", *_BASH),
            ),
            None,
        ),
        (
            "docker",
            ("docker", "run", "--rm", "--network", "none", "shioenv-bench", *_BASH),
            None,
        ),
    )
    for name, command, layers in found:
        if shutil.which(command[0], path=_SEARCH) is None:
            yield Peer(name, failure="not installed")
            continue
        peer = Peer(name, command, layers)
        try:
            if name == "docker":
                _docker_image(root)
            peer.seconds(spawner)
        except (RuntimeError, OSError) as error:
            peer = Peer(name, failure=f"failed: {error}")
        yield peer


def forget_docker_image() -> None:
    if shutil.which("docker"):
        subprocess.run(["docker", "image", "rm", "shioenv-bench"], capture_output=True)


def _docker_image(root: Path) -> None:
    if subprocess.run(["docker", "info"], capture_output=True).returncode:
        raise RuntimeError("no daemon answers")
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tree:
        done = subprocess.run(
            ["docker", "import", "-", "shioenv-bench"], stdin=tree.stdout, capture_output=True
        )
    if done.returncode:
        raise RuntimeError(_reason(done.stderr.decode("utf-8", "replace")))


def _oci_configuration() -> dict[str, object]:
    """Return a minimal configuration: own namespaces, /proc and /dev."""
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "cwd": "/",
            "args": list(_BASH),
            "env": [f"PATH={_SEARCH}"],
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]
        },
    }
