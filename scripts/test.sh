#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds with warnings as errors and runs all fast tests, in 13 minutes on two cores of Zen 5. The rest of the checks:
# scripts/check.sh. What runs where, and how long: docs/testing.md. Exit code 0 only when all of it passed.
set -uo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

step "install what is missing (minutes, the first time)" scripts/setup.sh --tests || exit 1
if step "build, warnings are errors (6 minutes)" build_preset dev -DMIXEDPREC_ENABLE_CUDA=OFF -DMIXEDPREC_ENABLE_BENCH=OFF; then
    step "fast tests (7 minutes)" run_tests dev -LE slow
    summary_of "$last_log"
fi
finish
