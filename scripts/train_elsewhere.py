#!/usr/bin/env python3
"""Trains and judges sequence models on a machine with a GPU that reaches no package index.

    here:   python scripts/train_elsewhere.py pack EXPERIMENTS/data/regimes CARRIED
            packs the examples of `shioenv experiment regimes --seq2seq-size small --device
            elsewhere`
    here:   python scripts/train_elsewhere.py wheels 3.12 CARRIED
            collects shioenv and what it needs there besides torch, for its Python (x86-64)
    there:  python3 scripts/train_elsewhere.py run CARRIED RUNS OUT --minutes 9 [--first NAME]
            trains a model of each CARRIED/NAME.examples, asks it every CARRIED/*.suite, and goes on
            where an earlier call was stopped. OUT gets results.tar.gz, and the model of --first in
            parts
    here:   python scripts/train_elsewhere.py home OUT DIR
            unpacks what came back: DIR/NAME/seq2seq-SIZE has curve, card, answers and weights

On the other machine Python has torch, transformers and scikit-learn. Several models train at once,
since one alone leaves a large GPU half idle; processors answer the suites meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("msgspec", "rapidfuzz", "zstandard")
"""Requirements of shioenv for training and evaluation, besides those of torch and transformers."""
OWN = ("shioenv", "shioenv-eval", "shioenv-model")
"""Packages of this clone that the other machine needs."""
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")
PART = 15 * 1024 * 1024
"""Bytes of a part of a model's file: many tools for transferring files take 16 MiB at most."""
TRAINING, WORKING = 0.87, 0.96
"""Shares of the time after which training ends, and all work ends: then follows the packing."""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    _verb(verbs, "pack", pack_examples, directory=Path, carried=Path)
    _verb(verbs, "wheels", collect, python=str, carried=Path)
    _verb(verbs, "one", train_one, examples=Path, run=Path, plan=str, device=str, minutes=float)
    _verb(verbs, "ask", ask_one, suite=Path, run=Path, workers=int)
    _verb(verbs, "home", unpack, out=Path, directory=Path)
    run = _verb(
        verbs, "run", lambda given: Elsewhere(given).run(), carried=Path, runs=Path, out=Path
    )
    run.add_argument("--minutes", type=float, default=9.0, help="of everything")
    run.add_argument("--each", type=float, default=1.3, help="minutes of each model's training")
    run.add_argument(
        "--first", default="", help="the model that trains all the time, and comes home"
    )
    run.add_argument(
        "--jobs", type=int, default=3, help="models that train at once, beside --first"
    )
    run.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 4))
    run.add_argument("--device", default="cuda")
    run.add_argument("--whole", type=float, default=0.0, help="minutes of --first over all calls")
    run.add_argument("--size", default="small")
    run.add_argument("--first-size", default="base")
    run.add_argument("--plan", type=json.loads, default={}, help="JSON: settings of all plans")
    run.add_argument("--first-plan", type=json.loads, default={}, help="JSON: those of --first")
    given = parser.parse_args()
    return int(given.do(given))


def _verb(
    verbs: Any, name: str, do: Callable[[argparse.Namespace], int], **arguments: type
) -> argparse.ArgumentParser:
    """Add a subcommand that runs `do`, with its arguments in order."""
    parser: argparse.ArgumentParser = verbs.add_parser(name)
    parser.set_defaults(do=do)
    for argument, kind in arguments.items():
        parser.add_argument(argument, type=kind)
    return parser


def collect(given: argparse.Namespace) -> int:
    """Download the wheels that the other machine lacks, and build those of this clone."""
    text = (ROOT / "packages/shioenv/pyproject.toml").read_text(encoding="utf-8")
    wheels = given.carried / "wheels"
    versions = [
        found[1] for name in NEEDED if (found := re.search(rf'^  "({name}[<>=].*)",$', text, re.M))
    ]
    where = [f"--platform={each}_x86_64" for each in PLATFORMS]
    command = [
        sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
        "--implementation=cp", f"--python-version={given.python}", *where, "-d", str(wheels),
        *versions,
    ]  # fmt: skip
    own = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(wheels)]
    own += [str(ROOT / "packages" / name) for name in OWN]
    return max(subprocess.run(each, check=False).returncode for each in (command, own))


def pack_examples(given: argparse.Namespace) -> int:
    """Pack the examples of every model of an experiment."""
    from shioenv_model.files import pack

    for examples in sorted(given.directory.glob("*/examples")):
        file = given.carried / f"{examples.parent.name}.examples"
        print(f"{file}: {pack(examples, file) / 1e6:.1f} MB")
    return 0


def train_one(given: argparse.Namespace) -> int:
    """Train one model, in a separate process."""
    import msgspec

    from shioenv_model.files import opened
    from shioenv_model.training.sequence import TrainingPlan, train
    from shioenv_model.training.token_examples import Examples

    plan = msgspec.json.decode(given.plan, type=TrainingPlan)
    examples = Examples(opened(given.examples))
    piece = train(given.run, examples, plan, device=given.device, minutes=given.minutes)
    told = {name: getattr(piece, name) for name in ("step", "ended", "best_loss")}
    print(json.dumps({"model": given.run.name, **told, "last": piece.curve[-1:]}), flush=True)
    return 0


def ask_one(given: argparse.Namespace) -> int:
    """Evaluate one model on one suite."""
    from shioenv_eval.evaluate import answers_beneath, evaluate
    from shioenv_eval.suite import read_suite

    suite, model = read_suite(given.suite), f"seq2seq:{given.run / 'model'}"
    done = evaluate(suite, [model], answers_beneath(given.run, suite), workers=given.workers)
    for about in done.document["predictors"].values():
        told = {steps: about[steps]["em"][0] for steps in ("single", "multi") if steps in about}
        print(json.dumps({"model": given.run.name, "suite": given.suite.stem, **told}), flush=True)
    return 0


class Elsewhere:
    """One call on the other machine."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.begun = time.monotonic()
        self.ends = self.begun + 60 * given.minutes * WORKING
        self.trained = self.begun + 60 * given.minutes * TRAINING
        self.environment = dict(os.environ)
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()

    def run(self) -> int:
        """Train and evaluate until the time is up, and write the results."""
        given = self.given
        self.install()
        names = sorted(path.stem for path in given.carried.glob("*.examples"))
        others = [name for name in names if name != given.first]
        asking = ThreadPoolExecutor(max(1, given.jobs))
        training = ThreadPoolExecutor(max(1, given.jobs))
        threading.Thread(target=self.stop_at_the_end, daemon=True).start()
        asked: list[Future[None]] = []

        def learn(name: str) -> None:
            if self.train(name, given.each):
                asked.append(asking.submit(self.ask, name))

        whole = given.whole or (self.trained - time.monotonic()) / 60
        first = threading.Thread(target=self.train, args=(given.first, whole))
        if given.first in names:
            first.start()
        for each in [training.submit(learn, name) for name in others]:
            each.result()
        for one in asked:
            one.result()
        if given.first in names:
            first.join()
        self.pack(names)
        return 0

    def install(self) -> None:
        """Install the wheels next to the runs, once."""
        site = self.given.runs / "site"
        if not site.exists():
            wheels = map(str, (self.given.carried / "wheels").glob("*.whl"))
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
            subprocess.run([*command, "--no-compile", "--target", str(site), *wheels], check=True)
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment |= {
            "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }  # fmt: skip

    def call(self, command: list[str], log: Path) -> bool:
        """Run a program; return whether it succeeded. Nothing is started once the time is up."""
        if time.monotonic() >= self.ends:
            return False
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=file, env=self.environment,
                start_new_session=True,
            )  # fmt: skip
            with self.lock:
                self.processes.add(process)
            said, _ = process.communicate()
            with self.lock:
                self.processes.discard(process)
            file.write(said)
        if process.returncode:
            tail = log.read_text(encoding="utf-8", errors="replace")[-1500:]
            self.tell(f"{log.name} ended with {process.returncode}: {tail}")
        return not process.returncode

    def stop_at_the_end(self) -> None:
        """End all running programs when the time is up."""
        time.sleep(max(0.0, self.ends - time.monotonic()))
        with self.lock:
            for process in self.processes:
                os.killpg(process.pid, 9)

    def tell(self, what: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"{time.monotonic() - self.begun:5.0f} s  {what}", flush=True)

    def train(self, name: str, minutes: float) -> bool:
        """Train the model of this name; return whether it exists then."""
        given = self.given
        left = (self.trained - time.monotonic()) / 60
        run = given.runs / name
        if left <= 0:
            return False
        if (begun := run / "plan.json").exists():
            plan = json.loads(begun.read_bytes())["plan"]
        else:
            plan = {
                "size": self.size(name), "steps": 1_000_000, "every": 50, "patience": 1000,
                "minutes": round(minutes, 3), **given.plan,
                **(given.first_plan if name == given.first else {}),
            }  # fmt: skip
        self.tell(f"{name} trains")
        done = self.call(
            [sys.executable, __file__, "one", str(given.carried / f"{name}.examples"), str(run),
             json.dumps(plan), given.device, str(left + 0.1)],
            run / "train.log",
        )  # fmt: skip
        self.tell(f"{name}: {_last(run / 'train.log')}")
        return done

    def size(self, name: str) -> str:
        """Return the size of the model of this name."""
        return str(self.given.first_size if name == self.given.first else self.given.size)

    def ask(self, name: str) -> None:
        """Evaluate a model on every suite, all at once."""
        suites = sorted(self.given.carried.glob("*.suite"))
        workers = max(1, self.given.workers // (len(suites) * max(1, self.given.jobs) or 1))

        def ask(suite: Path) -> None:
            log = self.given.runs / name / f"{suite.stem}.log"
            self.call(
                [sys.executable, __file__, "ask", str(suite), str(self.given.runs / name),
                 str(workers)],
                log,
            )  # fmt: skip
            self.tell(f"{name} was asked {suite.stem}: {_last(log)}")

        with ThreadPoolExecutor(len(suites) or 1) as pool:
            list(pool.map(ask, suites))

    def pack(self, names: list[str]) -> None:
        """Write the results into the output directory."""
        given = self.given
        given.out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(given.out / "results.tar.gz", "w:gz") as tar:
            for name in names:
                run = given.runs / name
                size = f"seq2seq-{self.size(name)}"
                for path in sorted(run.rglob("*")):
                    inside = path.relative_to(run)
                    if "checkpoints" in inside.parts or not path.is_file():
                        continue
                    if path.suffix != ".safetensors":
                        tar.add(path, Path(name, size, inside))
        weights = given.runs / given.first / "model" / "model.safetensors"
        if given.first and weights.exists():
            self.tell("the model is packed")
            data = planes(weights.read_bytes(), self.given.runs / "site")
            for number in range(0, len(data), PART):
                part = given.out / f"{given.first}.weights.{number // PART:02}"
                part.write_bytes(data[number : number + PART])
        self.tell("done")


def planes(weights: bytes, site: Path) -> bytes:
    """Pack weights in bf16: high and low bytes separately, since high ones repeat.

    `shioenv_model.files.pack` takes a minute for `base`. This takes less, with 15% more bytes:
    device time is limited.
    """
    sys.path.append(str(site))
    import zstandard

    padded = weights + b"\0" * (len(weights) % 2)
    packer = zstandard.ZstdCompressor(level=9, threads=-1)
    return len(weights).to_bytes(8, "little") + packer.compress(padded[1::2] + padded[::2])


def unpack(given: argparse.Namespace) -> int:
    """Unpack the results."""
    import zstandard

    out, directory = given.out, given.directory
    with tarfile.open(out / "results.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    parts = sorted(out.glob("*.weights.*"))
    if parts:
        name = parts[0].name.partition(".")[0]
        data = b"".join(part.read_bytes() for part in parts)
        size = int.from_bytes(data[:8], "little")
        both = zstandard.ZstdDecompressor().decompressobj().decompress(data[8:])
        whole = bytearray(len(both))
        half = len(both) // 2
        whole[1::2], whole[::2] = both[:half], both[half:]
        (run,) = (directory / name).glob("seq2seq-*")
        (run / "model" / "model.safetensors").write_bytes(whole[:size])
    return 0


def _last(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "nothing said"


if __name__ == "__main__":
    sys.exit(main())
