#!/bin/sh
# The driver of the C client, built if a source is newer: see ../conformance/README.md.
set -e
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$here/build"
# Several drivers start at once.
flock "$here/build/lock" make -s -C "$here" build/conformance >&2
exec "$here/build/conformance"
