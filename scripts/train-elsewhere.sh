#!/bin/sh
# Trains on another machine, one that has torch and transformers but reaches no package index.
#
#   here:   scripts/train-elsewhere.sh wheels 3.12 DIR
#           collects into DIR what shioenv needs there besides, for its Python (x86-64)
#   there:  scripts/train-elsewhere.sh run WHEELS EXAMPLES RUN OUT [options of `shioenv train model`]
#           trains a piece; the same command goes on. OUT gets the curve and the packed model in
#           parts of at most 15 MiB: `cat OUT/*.model.* >my.model` puts it together
set -eu
cd "$(dirname "$0")/.."

case "${1:-}" in
wheels)
    python=$2 directory=$3
    platforms=$(for version in 2_28 2_27 2_17 2014 1; do
        case $version in 2014 | 1) echo "--platform manylinux${version}_x86_64" ;;
        *) echo "--platform manylinux_${version}_x86_64" ;; esac
    done)
    needed=$(sed -n 's/^  "\(\(msgspec\|zstandard\)[<>=].*\)",/\1/p' \
        pyproject.toml)
    # shellcheck disable=SC2086 - words apart
    exec .venv/bin/python -m pip download -q --no-deps --only-binary=:all: --implementation cp \
        --python-version "$python" $platforms -d "$directory" $needed
    ;;
run)
    wheels=$2 examples=$3 run=$4 out=$5
    shift 5
    site=$run/site
    [ -d "$site" ] || python3 -m pip install -q --no-index --no-deps --no-compile \
        --target "$site" "$wheels"/*.whl
    export PYTHONPATH="$PWD/src:$site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
    python3 -m shioenv.cli.main train model "$examples" --out "$run" "$@"
    mkdir -p "$out"
    cp "$run/curve.csv" "$run/model/model.json" "$out"
    for model in "$run"/*.model; do
        split -b 15M -d "$model" "$out/$(basename "$model")."
    done
    ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
