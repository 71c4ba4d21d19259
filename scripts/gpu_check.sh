#!/bin/sh
# Checks torchscale's CUDA paths on this machine and prints one table; see docs/gpu-check.md.
#   scripts/gpu_check.sh pack [DIR]    where there is a network: fetch the wheels that a GPU machine may lack
#   scripts/gpu_check.sh               on the GPU machine, with PyTorch: run the checks; no network, at most 8 minutes
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
exec "${PYTHON:-python3}" "$root/scripts/gpu_check.py" "$@"
