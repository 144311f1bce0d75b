package io.antiphon;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.locks.Condition;
import java.util.function.BiConsumer;
import java.util.function.Supplier;

/**
 * What a group, a watch or a served verb is told, in order, and what comes behind the last.
 *
 * <p>It is bounded: {@link Connection} says how. All fields are under the lock of the connection.
 */
final class Stream<T> implements Iterator<T> {
    /** About what an event takes beside its line. */
    private static final int EVENT_BYTES = 500;

    private record Entry<T>(T event, int bytes) {}

    private final Connection connection;
    private final BiConsumer<Stream<T>, T> overrun;
    final Condition changed;
    private final ArrayDeque<Entry<T>> events = new ArrayDeque<>();
    private Supplier<? extends AntiphonException> error;

    /** The thread that takes from it, as far as is known. */
    Thread reader;
    long bytes;
    /** Nothing more is put. */
    boolean over;

    Stream(Connection connection, Thread reader, BiConsumer<Stream<T>, T> overrun) {
        this.connection = connection;
        this.reader = reader;
        this.overrun = overrun;
        this.changed = connection.lock.newCondition();
    }

    void put(T event, int lineBytes) {
        if (over) {
            return;
        }
        if (bytes > connection.mostBytes) {
            overrun.accept(this, event);
        } else {
            add(event, lineBytes);
        }
    }

    private void add(T event, int lineBytes) {
        events.add(new Entry<>(event, lineBytes + EVENT_BYTES));
        bytes += lineBytes + EVENT_BYTES;
        changed.signalAll();
    }

    /** This is the last event. */
    void endWith(T last) {
        if (!over) {
            add(last, 0);
            end(null);
        }
    }

    /** Ends with this error, or without one, behind what is unread. */
    void end(Supplier<? extends AntiphonException> error) {
        if (!over) {
            over = true;
            this.error = error;
        }
        changed.signalAll();
        connection.gate.signalAll();
    }

    /** Drops what is unread. */
    void clear() {
        events.clear();
        bytes = 0;
    }

    /** Ends at once: what is unread is dropped. */
    void discard() {
        clear();
        error = null;
        over = true;
        end(null);
    }

    /** Whether there is another event; waits until that is known. */
    @Override
    public boolean hasNext() {
        return connection.locked(() -> {
            await(Connection.FOREVER);
            if (events.isEmpty() && error != null) {
                throw error.get();
            }
            return !events.isEmpty();
        });
    }

    @Override
    public T next() {
        return poll(Connection.FOREVER);
    }

    /** The next event, null if none comes in this time. */
    T poll(long nanos) {
        return connection.locked(() -> {
            if (!await(nanos)) {
                return null;
            }
            if (!events.isEmpty()) {
                Entry<T> entry = events.remove();
                bytes -= entry.bytes;
                reader = Thread.currentThread();
                connection.gate.signalAll();
                return entry.event;
            }
            throw error != null ? error.get() : new NoSuchElementException("the events are over");
        });
    }

    /** False if time is up. */
    private boolean await(long nanos) {
        return Connection.interruptibly(() -> {
            long left = nanos;
            while (events.isEmpty() && !over) {
                if (left <= 0) {
                    return false;
                }
                left = changed.awaitNanos(left);
            }
            return true;
        });
    }
}
