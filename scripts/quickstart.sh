#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a trained model: installs what is missing, builds, and trains a small GPT in fp32, bf16_mixed and
# bf16_pure_kahan side by side. After the installation, under 5 minutes on two newer cores. Further arguments go to the trainer,
# and stand for the defaults below.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

corpus=build/corpus.txt
# A model and a number of steps that show the difference between recipes and the shape of words in a minute each.
defaults=(--layers 3 --dim 192 --batch 12 --steps 220 --lr 2e-3 --temperature 0.6)
step "install what is missing (minutes, the first time)" scripts/setup.sh || exit 1
start=$SECONDS
step "write the text ($corpus)" scripts/corpus.sh "$corpus" || exit 1
step "configure and build (2 to 3 minutes on two newer cores)" build_preset release -DMIXEDPREC_ENABLE_TESTS=OFF \
    -DMIXEDPREC_ENABLE_BENCH=OFF -DMIXEDPREC_ENABLE_TOOLS=ON mixedprec_train || exit 1
echo "== train in three recipes, one after another (about a minute each on two cores)"
build/release/tools/train/mixedprec_train --data "$corpus" --compare fp32,bf16_mixed,bf16_pure_kahan "${defaults[@]}" "$@"
note "the trainer is built; \`cmake --build build/release\` builds the rest: the command mixedprec and modules, such as MPI's"
echo "== built and trained in $((SECONDS - start)) s, the installation not counted"
