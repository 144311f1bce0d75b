#include "link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES ((size_t)256 << 10)
#define KEPT_BYTES ((size_t)1 << 20) /* of a buffer that a large line made large */

int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int left_ms(int64_t deadline_ms)
{
	if (deadline_ms < 0)
		return -1;
	int64_t left = deadline_ms - now_ms();
	return left < 0 ? 0 : left > 1 << 30 ? 1 << 30 : (int)left;
}

/* Lines go at once, and a host that goes without a word is noticed within two minutes, as long as nothing
 * waits to be sent to it. TCP_USER_TIMEOUT would also end a connection whose agent takes nothing for a while,
 * as for a group without a majority. */
static void prepare(int fd)
{
	const int on = 1, ask_after_s = 60, ask_each_s = 10, asked = 6;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &ask_after_s, sizeof ask_after_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &ask_each_s, sizeof ask_each_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &asked, sizeof asked);
}

/* A socket that is connected, with errno 0, or about to be; or -1 and errno. */
static int begin(const struct sockaddr *address, socklen_t length)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (address->sa_family != AF_UNIX)
		prepare(fd);
	int error = connect(fd, address, length) == 0 ? 0 : errno;
	if (error && error != EINPROGRESS && error != EINTR) {
		close(fd);
		fd = -1;
	}
	errno = error;
	return fd;
}

/* A socket that is connected by the deadline, or -1 and errno. */
static int connected(struct link *link, const struct sockaddr *address, socklen_t length, int64_t deadline_ms)
{
	int fd = begin(address, length), error = errno;
	if (fd < 0)
		return -1;
	if (error) {
		struct pollfd out = { .fd = fd, .events = POLLOUT };
		int ready;
		while ((ready = poll(&out, 1, left_ms(deadline_ms))) < 0 && errno == EINTR)
			;
		socklen_t size = sizeof error;
		if (ready == 0)
			error = ETIMEDOUT;
		else if (ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
			error = errno;
	}
	if (!error) {
		memcpy(&link->peer, address, length);
		link->peer_length = length;
		return fd;
	}
	close(fd);
	errno = error;
	return -1;
}

static int open_unix(struct link *link, const char *path, int64_t deadline_ms, char *reason, size_t size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (!*path || strlen(path) >= sizeof address.sun_path) {
		snprintf(reason, size, "the path of a Unix socket has 1 to %zu bytes", sizeof address.sun_path - 1);
		errno = EINVAL;
		return -1;
	}
	memcpy(address.sun_path, path, strlen(path));
	/* A Unix socket whose queue of connections is full does not wait: it says so. */
	for (;;) {
		int fd = connected(link, (struct sockaddr *)&address, sizeof address, deadline_ms);
		if (fd >= 0)
			return fd;
		if (errno != EAGAIN || left_ms(deadline_ms) == 0)
			break;
		poll(NULL, 0, 10);
	}
	int error = errno;
	snprintf(reason, size, "cannot connect to %.200s: %s: is the agent running, with this --socket?", path,
		 strerror(error));
	errno = error;
	return -1;
}

static int open_tcp(struct link *link, const char *address, int64_t deadline_ms, char *reason, size_t size)
{
	char host[LINK_MAX_ADDRESS];
	const char *colon = strrchr(address, ':');
	size_t length = colon ? (size_t)(colon - address) : 0;
	if (!length || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")] || length >= sizeof host) {
		snprintf(reason, size, "an address is \"host:port\", \"unix:/path\" or \"/path\", not \"%.200s\"", address);
		errno = EINVAL;
		return -1;
	}
	bool brackets = address[0] == '[' && address[length - 1] == ']';
	snprintf(host, sizeof host, "%.*s", (int)(length - 2 * brackets), address + brackets);
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
	int failed = getaddrinfo(host, colon + 1, &hints, &found);
	if (failed) {
		snprintf(reason, size, "cannot resolve %.200s: %s", host, gai_strerror(failed));
		errno = ENOENT;
		return -1;
	}
	int fd = -1;
	for (struct addrinfo *one = found; one && fd < 0; one = one->ai_next)
		fd = connected(link, one->ai_addr, one->ai_addrlen, deadline_ms);
	int error = errno;
	freeaddrinfo(found);
	if (fd >= 0)
		return fd;
	snprintf(reason, size, "cannot connect to %.200s: %s: is the agent running, with this --listen?", address,
		 strerror(error));
	errno = error;
	return -1;
}

bool link_open(struct link *link, const char *address, int timeout_ms, char *reason, size_t size)
{
	int64_t deadline_ms = timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
	*link = (struct link){ .fd = -1 };
	if (!strncmp(address, "unix:", 5))
		link->fd = open_unix(link, address + 5, deadline_ms, reason, size);
	else if (address[0] == '/')
		link->fd = open_unix(link, address, deadline_ms, reason, size);
	else
		link->fd = open_tcp(link, address, deadline_ms, reason, size);
	return link->fd >= 0;
}

bool link_again(struct link *link)
{
	link->fd = begin((const struct sockaddr *)&link->peer, link->peer_length);
	link->in.length = link->taken = link->searched = 0;
	link->out.length = link->written = 0;
	link->out.failed = false;
	return link->fd >= 0;
}

void link_close(struct link *link)
{
	if (link->fd >= 0)
		close(link->fd);
	link->fd = -1;
	text_free(&link->in);
	text_free(&link->out);
}

char *link_line(struct link *link, size_t *length)
{
	char *line = link->in.bytes + link->taken;
	size_t there = link->in.length - link->taken;
	char *end = there > link->searched ? memchr(line + link->searched, '\n', there - link->searched) : NULL;
	if (!end) {
		link->searched = there;
		return NULL;
	}
	*length = (size_t)(end - line);
	link->taken += *length + 1;
	link->searched = 0;
	return line;
}

size_t link_take(struct link *link, const char **bytes, size_t most)
{
	size_t there = link->in.length - link->taken, length = most < there ? most : there;
	*bytes = link->in.bytes + link->taken;
	link->taken += length;
	link->searched = 0;
	return length;
}

ssize_t link_fill(struct link *link)
{
	struct text *in = &link->in;
	if (link->taken) {
		in->length -= link->taken;
		memmove(in->bytes, in->bytes + link->taken, in->length);
		link->taken = 0;
		if (in->capacity > KEPT_BYTES && in->length + READ_BYTES < KEPT_BYTES) {
			char *smaller = realloc(in->bytes, KEPT_BYTES);
			if (smaller) {
				in->bytes = smaller;
				in->capacity = KEPT_BYTES;
			}
		}
	}
	if (in->length > LINK_MAX_LINE) {
		errno = EMSGSIZE;
		return -1;
	}
	if (in->capacity - in->length < READ_BYTES / 4 && !text_reserve(in, READ_BYTES)) {
		errno = ENOMEM;
		return -1;
	}
	ssize_t got;
	do
		got = recv(link->fd, in->bytes + in->length, in->capacity - in->length, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got > 0) {
		in->length += (size_t)got;
		return got;
	}
	if (got == 0) {
		errno = 0;
		return -1;
	}
	return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
}

size_t link_unwritten(const struct link *link)
{
	return link->out.length - link->written;
}

bool link_flush(struct link *link)
{
	while (link_unwritten(link)) {
		ssize_t put = send(link->fd, link->out.bytes + link->written, link_unwritten(link),
				   MSG_DONTWAIT | MSG_NOSIGNAL);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK;
		link->written += (size_t)put;
	}
	link->written = link->out.length = 0;
	if (link->out.capacity > KEPT_BYTES)
		text_free(&link->out);
	return true;
}
