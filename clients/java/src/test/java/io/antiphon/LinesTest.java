package io.antiphon;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeout;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.time.Duration;
import java.util.Random;
import org.junit.jupiter.api.Test;

class LinesTest {
    /** A channel that only reads. */
    private interface Source extends ReadableByteChannel {
        @Override
        default boolean isOpen() {
            return true;
        }

        @Override
        default void close() {}
    }

    /** Gives so many bytes at once, at most. */
    private static Lines lines(ByteBuffer from, int atOnce) {
        Source source = into -> {
            if (!from.hasRemaining()) {
                return -1;
            }
            int count = Math.min(atOnce, Math.min(from.remaining(), into.remaining()));
            into.put(from.slice(from.position(), count));
            from.position(from.position() + count);
            return count;
        };
        return new Lines(source);
    }

    private static Lines lines(String text, int atOnce) {
        return lines(ByteBuffer.wrap(text.getBytes(UTF_8)), atOnce);
    }

    @Test
    void lines_are_whole_whatever_pieces_they_come_in() throws IOException {
        for (int atOnce : new int[] {1, 2, 3, 7, 1000}) {
            Lines lines = lines("grüße 日本\n\n{\"a\":\"🎉\"}\nno end", atOnce);
            assertEquals("grüße 日本", new String(lines.next(), UTF_8));
            assertEquals(0, lines.next().length);
            assertEquals("{\"a\":\"🎉\"}", new String(lines.next(), UTF_8));
            assertNull(lines.next());
        }
    }

    @Test
    void lines_of_all_lengths_follow_each_other() throws IOException {
        Random random = new Random(7);
        byte[][] wanted = new byte[300][];
        ByteBuffer all = ByteBuffer.allocate(64 << 20);
        for (int at = 0; at < wanted.length; at++) {
            wanted[at] = "x".repeat(random.nextInt(at % 50 == 0 ? 3_000_000 : 100_000)).getBytes(UTF_8);
            if (wanted[at].length > 0) {
                wanted[at][wanted[at].length - 1] = (byte) (at % 200 + '\n' + 1);
            }
            all.put(wanted[at]).put((byte) '\n');
        }
        Lines lines = lines(all.flip(), 50_001);
        for (byte[] line : wanted) {
            assertArrayEquals(line, lines.next());
        }
        assertNull(lines.next());
    }

    @Test
    void a_giant_line_in_small_pieces_takes_no_time_that_grows_with_its_square() {
        String giant = "y".repeat(30_000_000);
        assertTimeout(Duration.ofSeconds(20), () -> {
            Lines lines = lines(giant + "\nz\n", 1000);
            assertEquals(30_000_000, lines.next().length);
            assertArrayEquals(new byte[] {'z'}, lines.next());
        });
    }

    @Test
    void a_line_without_end_is_an_error() {
        Source endless = into -> {
            int count = into.remaining();
            into.position(into.limit());
            return count;
        };
        assertThrows(IOException.class, new Lines(endless)::next);
    }
}
