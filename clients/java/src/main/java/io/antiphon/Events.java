package io.antiphon;

import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Optional;

/**
 * Events in their order, each taken once, by whichever thread and iterator comes first. Iterating waits for
 * the next. It ends when the events are over: with a {@link ConnectionLostException} if the connection is.
 */
public abstract sealed class Events<T> implements Iterable<T>, AutoCloseable permits Group, Watch {
    final Connection connection;
    final Stream<T> stream;

    Events(Connection connection, Stream<T> stream) {
        this.connection = connection;
        this.stream = stream;
    }

    @Override
    public Iterator<T> iterator() {
        return stream;
    }

    /**
     * The next event, or nothing if none comes in this time.
     *
     * @throws NoSuchElementException behind the last
     */
    public Optional<T> next(Duration timeout) {
        return Optional.ofNullable(stream.poll(timeout.toNanos()));
    }

    @Override
    public abstract void close();
}
