#!/bin/sh
# Tests what needs torch (sequence models: trained, in pieces, from a checkpoint, asked) in an
# environment of its own, kept in .train: torch alone is larger than all the rest.
set -eu
cd "$(dirname "$0")/.."

home=.train
if [ ! -e "$home/.made" ] || [ pyproject.toml -nt "$home/.made" ]; then
    echo "test-train: making $home (pip)"
    [ -x "$home/bin/python" ] || .venv/bin/python -m venv "$home"
    pip="$home/bin/python -m pip install -q --disable-pip-version-check"
    # a build for the processor alone would need an index of its own; this one is pinned
    $pip 'torch==2.13.0'
    $pip -e '.[train,export,report,evaluation]' 'pytest>=8.3' \
        'pytest-timeout>=2.3' 'pytest-xdist>=3.6' 'hypothesis>=6.112'
    touch "$home/.made"
fi
"$home/bin/python" -m pytest -q tests/unit/modeling/test_training.py \
    tests/unit/modeling/test_checkpoint.py tests/system/test_tiny_model.py \
    tests/system/test_experiments.py::test_regimes_of_sequence_models
