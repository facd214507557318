#!/bin/sh
# Tests what needs torch (sequence models: trained, in pieces, from a checkpoint, asked) in an
# environment of its own, kept in .train: torch alone is larger than all the rest.
set -eu
cd "$(dirname "$0")/.."

# a build for the processor alone would need an index of its own; this one is pinned
scripts/environment.sh .train train,export,report,emulators,llm,rl 'torch==2.13.0'
.train/bin/python -m pytest -q tests/journeys/test_training.py \
    packages/shioenv-model/tests/unit/training/test_checkpoint.py \
    packages/shioenv-agents/tests/unit/fronts/test_stable_baselines.py \
    packages/shioenv-eval/tests/system/test_tiny_model.py \
    packages/shioenv-agents/tests/system/test_train_on_tasks.py \
    packages/shioenv-paper/tests/system/test_experiments.py::test_regimes_of_sequence_models
.train/bin/python -m pytest -q --layer=nightly --timeout=900 \
    packages/shioenv-paper/tests/unit/experiments/test_networks.py \
    packages/shioenv-paper/tests/system/test_experiments.py::test_networks_are_packed_trained_without_this_project_and_judged
