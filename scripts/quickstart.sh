#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a trained model: installs what is missing, builds, and trains a small GPT in fp32, bf16_mixed and
# bf16_pure_kahan side by side. Further arguments go to the trainer.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

corpus=build/corpus.txt
step "install what is missing" scripts/setup.sh || exit 1
step "write the text ($corpus)" scripts/corpus.sh "$corpus" || exit 1
step "configure and build (release)" build_preset release train_gpt || exit 1
exec build/release/examples/train_gpt/train_gpt --data "$corpus" --compare fp32,bf16_mixed,bf16_pure_kahan "$@"
