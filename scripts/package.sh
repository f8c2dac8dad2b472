#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes packages in build/package/packages and looks at them.
#     scripts/package.sh            .deb files and a .tar.gz of what is built for release, looked at by
#                                   tests/install/hardening.py, and by lintian where it is
#     scripts/package.sh -D...      the same, with options of the configuration, such as -DMIXEDPREC_ENABLE_CUDA=OFF
#     scripts/package.sh source     mixedprec-VERSION.tar.gz of the commit at HEAD, with the made layers of the bindings: the
#                                   same bytes on every machine
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root_dir"

packages=build/package/packages
mkdir -p "$packages"
version=$(sed -n 's/^project(mixedprec VERSION \([0-9.]*\) .*/\1/p' CMakeLists.txt)

if [ "${1:-}" = source ]; then
    python3 bindings/generate/generate.py
    made=()
    for file in $(python3 bindings/generate/generate.py --list); do
        made+=("--prefix=mixedprec-$version/$(dirname "$file")/" "--add-file=$file")
    done
    # git gives every file the commit's time; gzip is told to write neither a name nor a time.
    git archive --format=tar "${made[@]}" --prefix="mixedprec-$version/" HEAD | gzip -9n > "$packages/mixedprec-$version.tar.gz"
    (cd "$packages" && sha256sum "mixedprec-$version.tar.gz")
    exit
fi
for word in "$@"; do
    [[ "$word" = -D* ]] || die "usage: scripts/package.sh [source | -DOPTION=VALUE...]"
done
rm -f "$packages"/*.deb "$packages"/mixedprec-*-Linux.tar.gz
build_preset package "$@"
(cd build/package && cpack)
python3 tests/install/hardening.py "$packages"/*.deb
if have_command lintian; then
    # As root lintian wants to be told so. Errors and warnings fail.
    lintian --allow-root --fail-on error,warning "$packages"/*.deb
else
    note "no lintian: the packages have not been looked at"
fi
ls -l "$packages"
