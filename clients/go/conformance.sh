#!/bin/sh
# The driver of the scenarios: see ../conformance/README.md. It is built when its source is newer, outside of the
# repository, and drivers that start at the same time do not disturb each other.
set -e
here=$(cd "$(dirname "$0")" && pwd)
place=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME}/.cache}/antiphon
driver=$place/conformance-go-$(printf %s "$here" | cksum | cut -d ' ' -f 1)
if [ ! -x "$driver" ] || [ -n "$(find "$here" \( -name '*.go' -o -name go.mod \) -newer "$driver")" ]; then
    mkdir -p "$place"
    (cd "$here" && go build -o "$driver.$$" ./cmd/conformance) >&2
    mv "$driver.$$" "$driver"
fi
exec "$driver"
