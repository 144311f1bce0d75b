package io.antiphon;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.locks.Condition;
import java.util.function.BiConsumer;
import java.util.function.IntFunction;
import java.util.function.Supplier;

/**
 * What a group, a watch or a served verb is told, in order, and what comes behind the last.
 *
 * <p>It is bounded: {@link Connection} says how. All fields are under the lock of the connection.
 */
final class Stream<T> implements Iterator<T> {
    /** About what an event takes beside its line. */
    private static final int EVENT_BYTES = 500;
    /** And each payload of a bundle. */
    private static final int PART_BYTES = 80;

    /** Events that came in one line. Each is made when it is taken. */
    private static final class Entry<T> {
        final IntFunction<? extends T> event;
        final int count;
        final int bytes;
        int taken;

        Entry(IntFunction<? extends T> event, int count, int bytes) {
            this.event = event;
            this.count = count;
            this.bytes = bytes;
        }
    }

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

    /** So many events, by their places. */
    void put(IntFunction<? extends T> event, int count, int lineBytes) {
        if (over) {
            return;
        }
        if (bytes > connection.mostBytes) {
            overrun.accept(this, event.apply(0));
        } else {
            add(event, count, lineBytes);
        }
    }

    private void add(IntFunction<? extends T> event, int count, int lineBytes) {
        Entry<T> entry = new Entry<>(event, count, lineBytes + EVENT_BYTES + (count - 1) * PART_BYTES);
        events.add(entry);
        bytes += entry.bytes;
        changed.signalAll();
    }

    /** This is the last event. It is not put to a stream that is over, but who waits for the end is told. */
    void endWith(T last) {
        if (!over) {
            add(part -> last, 1, 0);
        }
        end(null);
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
                Entry<T> entry = events.element();
                T event = entry.event.apply(entry.taken++);
                if (entry.taken == entry.count) {
                    events.remove();
                    bytes -= entry.bytes;
                }
                reader = Thread.currentThread();
                connection.gate.signalAll();
                return event;
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
