#!/bin/sh
# The driver of the client: see ../conformance/README.md. Builds it first if a source is newer than the classes.
set -e
cd "$(dirname "$0")"

stale() {
    [ ! -e target/classpath ] || [ -n "$(find src pom.xml -type f -newer target/classpath -print -quit)" ]
}

if stale; then
    mkdir -p target
    exec 9>target/build.lock
    flock 9 || true # several drivers start at once, and one of them builds
    if stale; then
        mvn --quiet --batch-mode -DskipTests process-test-classes >&2
    fi
    exec 9>&-
fi
exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx512m \
    -cp "target/test-classes:target/classes:$(cat target/classpath)" io.antiphon.ConformanceDriver
