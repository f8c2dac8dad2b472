#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the text that the trainer trains on: the King James Bible (public domain), one verse a line, 4.4 MB, from
# Debian's packages bible-kjv and bible-kjv-text. The same bytes at every call.
# usage: scripts/corpus.sh FILE
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ "$#" = 1 ] || die "usage: scripts/corpus.sh FILE"
[ ! -s "$1" ] || exit 0
have_command bible ||
    die "the program 'bible' is missing (Debian: bible-kjv bible-kjv-text). Any other text file will do for --data"
mkdir -p "$(dirname "$1")"
bible -f gen1:1-rev22:21 > "$1.part" < /dev/null
verses=$(wc -l < "$1.part")
[ "$verses" = 31102 ] || die "'bible' printed $verses verses instead of 31102"
mv "$1.part" "$1"
