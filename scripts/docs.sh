#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the reference (from the public headers) and the guide (README.md, CONTRIBUTING.md, docs) as one site with a tree and
# a search: build/docs/html/index.html. Needs doxygen 1.9.4 or newer and python3. Any warning is an error.
#     scripts/docs.sh [FOLDER]     FOLDER in place of build/docs
set -euo pipefail
. "$(dirname "$0")/lib.sh"

have_command doxygen || die "doxygen is missing (Debian: apt-get install --no-install-recommends doxygen)"
output=${1:-$root_dir/build/docs}
mkdir -p "$output"
version=$(sed -n 's/^#define MP_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' "$root_dir/capi/include/mixedprec/version.h" | paste -sd .)
pages=$(cd "$root_dir" && ls README.md docs/README.md docs/*.md CONTRIBUTING.md |
    awk '!seen[$0]++' | sed "s|^|$root_dir/|" | tr '\n' ' ')
sed -e "s|@VERSION@|$version|" -e "s|@OUTPUT@|$output|" -e "s|@PAGES@|$pages|" \
    -e "s|@FILTER@|$root_dir/scripts/docs_filter.py|g" -e "s|@ROOT@|$root_dir|g" "$root_dir/docs/Doxyfile.in" > "$output/Doxyfile"
rm -rf "$output/html"
doxygen "$output/Doxyfile"
echo "$(find "$output/html" -name '*.html' | wc -l) pages: ${output#"$root_dir"/}/html/index.html"
