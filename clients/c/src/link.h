/* The connection to an agent: lines in, bytes out, and nothing waits but link_open. */
#ifndef ANTIPHON_LINK_H
#define ANTIPHON_LINK_H

#include <sys/socket.h>
#include <sys/types.h>

#include "json.h"

#define LINK_MAX_LINE ((size_t)64 << 20)
#define LINK_MAX_ADDRESS 512

struct link {
	int fd; /* -1: none */
	struct text in;
	size_t taken;	 /* bytes of `in` that were given out as lines */
	size_t searched; /* bytes of `in` behind those in which no line ends */
	struct text out;
	size_t written;
	struct sockaddr_storage peer; /* to whom it was connected */
	socklen_t peer_length;
};

/* Connects to "host:port", "unix:/path" or "/path". False: `reason` says why not, and errno. */
bool link_open(struct link *link, const char *address, int timeout_ms, char *reason, size_t size);
/* Begins to connect where link_open did, behind link_close, and does not wait: what is to be written goes
 * when it is connected, and link_fill says if that failed. False: errno says why not. */
bool link_again(struct link *link);
void link_close(struct link *link);
/* The next whole line that was read, without its end, or NULL. It may be changed, with the byte behind
 * it, and stands until the next link_fill. */
char *link_line(struct link *link, size_t *length);
/* Some of what was read behind the line that was given out last, as it is, `most` bytes at most; how many.
 * They stand until the next link_fill. */
size_t link_take(struct link *link, const char **bytes, size_t most);
/* Reads once: bytes read; 0: nothing is there; -1: it is over, and errno says why, 0 for its end. */
ssize_t link_fill(struct link *link);
/* Writes what the socket takes of `out`. False: it is over, and errno says why. */
bool link_flush(struct link *link);
/* Bytes that are to be written. */
size_t link_unwritten(const struct link *link);

/* Milliseconds of a clock that nobody sets. */
int64_t now_ms(void);
/* For poll: until a deadline, or -1 if that is negative. */
int left_ms(int64_t deadline_ms);

#endif
