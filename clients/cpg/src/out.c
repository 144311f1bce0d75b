#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpg.h"

/* As long as so few frames are under way, each message is one, and is written at once. */
#define FEW_FRAMES 4
/* How long a message waits for the frames before it at most, if no dispatch sees them delivered. */
#define HOLD_US 500
#define PART_BYTES (512u << 10)
#define PART_MS 10000 /* for the agent to take a part */
#define MAX_VECTORS 1024

uint64_t new_id(struct cpg *cpg, uint64_t kind)
{
	return ++cpg->last_id << 2 | kind;
}

void put_line(struct cpg *cpg, const char *text)
{
	text_add_string(&cpg->link.out, text);
}

static bool is_sound(struct cpg *cpg)
{
	return !cpg->over && !cpg->mute;
}

static void flush(struct cpg *cpg)
{
	if (cpg->link.out.failed)
		cpg_lose(cpg, "no memory for what is to be written");
	/* The reader finds out why, behind what was said before. */
	else if (!link_flush(&cpg->link))
		cpg->mute = true;
}

/* A frame of `length` bytes, of which the first is its kind. */
static void put_frame(struct cpg *cpg, const void *frame, size_t length, bool safe)
{
	struct text *out = &cpg->link.out;
	text_add_string(out, "{\"send\":{\"group\":");
	text_add_quoted(out, cpg->group_name, strlen(cpg->group_name));
	text_add_string(out, ",\"payload\":{\"bytes\":");
	text_add_u64(out, length);
	text_add_string(out, safe ? "},\"safe\":true,\"id\":" : "},\"id\":");
	text_add_u64(out, new_id(cpg, ID_FRAME));
	text_add_string(out, "}}\n");
	text_add(out, frame, length);
	cpg->in_flight++;
}

void push(struct cpg *cpg, bool force)
{
	if (!is_sound(cpg))
		return;
	flush(cpg);
	if (!is_sound(cpg) || link_unwritten(&cpg->link) || !cpg->batch_count || cpg->suspended)
		return;
	if (cpg->state != JOINED || (!force && cpg->in_flight >= FEW_FRAMES))
		return;
	if (cpg->batch_count == 1) {
		unsigned char *frame = cpg->batch + cpg->batch_start - 1;
		size_t length = cpg->batch_length - cpg->batch_start + 1;
		*frame = payload_is_text(frame + 1, length - 1) ? FRAME_TEXT : FRAME_ONE;
		put_frame(cpg, frame, length, cpg->batch_safe);
	} else {
		cpg->batch[0] = FRAME_MANY;
		put_frame(cpg, cpg->batch, cpg->batch_length, cpg->batch_safe);
	}
	cpg->batch_count = 0;
	cpg->batch_length = 1;
	flush(cpg);
}

/* ---- the thread that writes ---- */

static void hold(struct cpg *cpg)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += HOLD_US * 1000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	while (!cpg->finalized && pthread_cond_timedwait(&cpg->work, &cpg->out, &until) != ETIMEDOUT)
		;
}

static void *write_on(void *of)
{
	struct cpg *cpg = of;
	pthread_mutex_lock(&cpg->out);
	while (!cpg->finalized && is_sound(cpg)) {
		if (link_unwritten(&cpg->link)) {
			struct pollfd fd = { .fd = cpg->link.fd, .events = POLLOUT };
			pthread_mutex_unlock(&cpg->out);
			poll(&fd, 1, 100);
			pthread_mutex_lock(&cpg->out);
			push(cpg, false);
		} else if (cpg->batch_count && cpg->state == JOINED && !cpg->suspended) {
			if (cpg->in_flight >= FEW_FRAMES)
				hold(cpg);
			push(cpg, true);
		} else if (cpg->batch_count && cpg->state == JOINING) {
			/* No other may be there to see that it is in. */
			pthread_mutex_unlock(&cpg->out);
			pthread_mutex_lock(&cpg->lock);
			if (cpg->state == JOINING)
				read_some(cpg, 10);
			ring(cpg, cpg->first != NULL);
			pthread_mutex_unlock(&cpg->lock);
			pthread_mutex_lock(&cpg->out);
		} else {
			cpg->writer_waits = true;
			pthread_cond_wait(&cpg->work, &cpg->out);
			cpg->writer_waits = false;
		}
	}
	pthread_mutex_unlock(&cpg->out);
	return NULL;
}

/* What no call may come to write is the thread's. */
static void wake_writer(struct cpg *cpg)
{
	/* No thread may begin behind stop_writer, which is called when this is so. */
	if (cpg->finalized)
		return;
	if (!cpg->batch_count && !link_unwritten(&cpg->link))
		return;
	if (cpg->has_writer) {
		if (cpg->writer_waits)
			pthread_cond_signal(&cpg->work);
		return;
	}
	/* The program's signals are for the program's threads. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	cpg->has_writer = pthread_create(&cpg->writer, NULL, write_on, cpg) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* Without a thread nothing is left to wait. */
	if (!cpg->has_writer)
		push(cpg, true);
}

void stop_writer(struct cpg *cpg)
{
	pthread_mutex_lock(&cpg->out);
	bool has_writer = cpg->has_writer;
	cpg->has_writer = false;
	pthread_cond_broadcast(&cpg->work);
	pthread_mutex_unlock(&cpg->out);
	if (has_writer)
		pthread_join(cpg->writer, NULL);
}

bool drain(struct cpg *cpg, int timeout_ms)
{
	int64_t deadline_ms = now_ms() + timeout_ms;
	size_t least = SIZE_MAX;
	for (;;) {
		pthread_mutex_lock(&cpg->out);
		push(cpg, true);
		bool blocked = link_unwritten(&cpg->link), done = !blocked && !cpg->batch_count && !cpg->in_flight;
		size_t rest = link_unwritten(&cpg->link) + cpg->batch_count + (size_t)cpg->in_flight;
		pthread_mutex_unlock(&cpg->out);
		/* As long as it gets less, it is worth waiting for. While others send, it goes up and down. */
		if (rest < least) {
			least = rest;
			deadline_ms = now_ms() + timeout_ms;
		}
		if (done || !is_sound(cpg))
			return done;
		int left = left_ms(deadline_ms);
		if (!left)
			return false;
		pthread_mutex_lock(&cpg->lock);
		if (cpg->queued_bytes > QUEUE_BYTES)
			left = 0;
		else
			read_some(cpg, blocked && left > 10 ? 10 : left);
		ring(cpg, cpg->first != NULL);
		pthread_mutex_unlock(&cpg->lock);
		if (!left)
			return false;
	}
}

/* ---- sending ---- */

static void gather(unsigned char *to, const struct iovec *vectors, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		if (vectors[i].iov_len)
			memcpy(to, vectors[i].iov_base, vectors[i].iov_len);
		to += vectors[i].iov_len;
	}
}

static bool takes_messages(const struct cpg *cpg)
{
	return !cpg->leaves && (cpg->state == JOINED || cpg->state == JOINING);
}

/* Puts a message to those that go with the next frame. Under `out`. */
static bool batch(struct cpg *cpg, const struct iovec *vectors, unsigned int count, size_t length, bool safe)
{
	if (cpg->batch_count && (cpg->batch_safe != safe || cpg->batch_length + 5 + length > BATCH_BYTES)) {
		push(cpg, true);
		if (cpg->batch_count)
			return false;
	}
	unsigned char *to = cpg->batch + cpg->batch_length;
	size_t left = length;
	for (; left >= 0x80; left >>= 7)
		*to++ = (unsigned char)(left | 0x80);
	*to++ = (unsigned char)left;
	gather(to, vectors, count);
	cpg->batch_start = (size_t)(to - cpg->batch);
	cpg->batch_length = cpg->batch_start + length;
	cpg->batch_safe = safe;
	cpg->batch_count++;
	/* What is full anyway waits for nothing. While the socket takes nothing, the thread waits for it. */
	bool is_full = cpg->batch_length > BATCH_BYTES - BATCH_BYTES / 8;
	if (is_full || !link_unwritten(&cpg->link))
		push(cpg, is_full);
	return true;
}

/* A frame of its own, behind all before it. Under `out`. */
static cs_error_t send_alone(struct cpg *cpg, const void *frame, size_t length, bool safe)
{
	push(cpg, true);
	if (!is_sound(cpg))
		return CS_ERR_LIBRARY;
	if (!takes_messages(cpg))
		return CS_ERR_NOT_EXIST;
	if (cpg->batch_count || link_unwritten(&cpg->link) || cpg->state != JOINED || cpg->suspended)
		return CS_ERR_TRY_AGAIN;
	put_frame(cpg, frame, length, safe);
	flush(cpg);
	return CS_OK;
}

/* For a moment, so that a program that tries again at once leaves the processor to the agent. `reads`:
 * the agent may wait for this member to read. */
static void wait_for_room(struct cpg *cpg, bool reads)
{
	if (reads || cpg->state == JOINING || cpg->suspended) {
		pthread_mutex_lock(&cpg->lock);
		if (cpg->queued_bytes < QUEUE_BYTES)
			read_some(cpg, 1);
		ring(cpg, cpg->first != NULL);
		pthread_mutex_unlock(&cpg->lock);
		return;
	}
	struct pollfd fd = { .fd = cpg->link.fd, .events = POLLOUT };
	poll(&fd, 1, 1);
}

static cs_error_t send_parts(struct cpg *cpg, const unsigned char *message, size_t length, bool safe)
{
	unsigned char *frame = malloc(PART_BYTES + 16);
	int64_t deadline_ms = now_ms() + PART_MS;
	cs_error_t result = frame ? CS_OK : CS_ERR_NO_MEMORY;
	for (size_t done = 0; result == CS_OK && done < length;) {
		size_t part = length - done < PART_BYTES ? length - done : PART_BYTES, header = 2;
		frame[0] = FRAME_PART;
		frame[1] = (unsigned char)((done ? 0 : PART_FIRST) | (done + part == length ? PART_LAST : 0));
		for (int i = 0; !done && i < 8; i++)
			frame[header++] = (unsigned char)((uint64_t)length >> 8 * i);
		memcpy(frame + header, message + done, part);
		pthread_mutex_lock(&cpg->out);
		result = send_alone(cpg, frame, header + part, safe);
		wake_writer(cpg);
		pthread_mutex_unlock(&cpg->out);
		if (result == CS_OK) {
			done += part;
			deadline_ms = now_ms() + PART_MS;
		} else if (result == CS_ERR_TRY_AGAIN && done && left_ms(deadline_ms)) {
			/* The rest has to follow, before the program can dispatch. */
			wait_for_room(cpg, true);
			result = CS_OK;
		} else if (result == CS_ERR_TRY_AGAIN && done) {
			cpg_lose(cpg, "the agent took the beginning of a large message, and then nothing for 10 s");
			result = CS_ERR_LIBRARY;
		}
	}
	free(frame);
	return result;
}

static cs_error_t send_large(struct cpg *cpg, const struct iovec *vectors, unsigned int count, size_t length, bool safe)
{
	cs_error_t result;
	unsigned char *frame = malloc(length + 1);
	if (!frame)
		return CS_ERR_NO_MEMORY;
	gather(frame + 1, vectors, count);
	if (length + 1 <= FRAME_BYTES) {
		*frame = payload_is_text(frame + 1, length) ? FRAME_TEXT : FRAME_ONE;
		pthread_mutex_lock(&cpg->out);
		result = send_alone(cpg, frame, length + 1, safe);
		wake_writer(cpg);
		pthread_mutex_unlock(&cpg->out);
	} else {
		/* Parts of two messages of one member may not mix. */
		pthread_mutex_lock(&cpg->parts);
		result = send_parts(cpg, frame + 1, length, safe);
		pthread_mutex_unlock(&cpg->parts);
	}
	free(frame);
	return result;
}

static cs_error_t send_message(struct cpg *cpg, cpg_guarantee_t guarantee, const struct iovec *vectors,
			       unsigned int count)
{
	size_t length = 0;
	if (count > MAX_VECTORS || (count && !vectors) || guarantee > CPG_TYPE_SAFE)
		return CS_ERR_INVALID_PARAM;
	for (unsigned int i = 0; i < count; i++)
		if (__builtin_add_overflow(length, vectors[i].iov_len, &length))
			return CS_ERR_INVALID_PARAM;
	if (length > MESSAGE_BYTES)
		return CS_ERR_TOO_BIG;
	if (!is_sound(cpg))
		return CS_ERR_LIBRARY;
	if (!takes_messages(cpg))
		return CS_ERR_NOT_EXIST;
	bool safe = guarantee == CPG_TYPE_SAFE;
	cs_error_t result = CS_ERR_TRY_AGAIN;
	if (length > BATCH_BYTES - 16) {
		result = send_large(cpg, vectors, count, length, safe);
	} else if (!cpg->suspended) {
		pthread_mutex_lock(&cpg->out);
		/* Another thread may have left since. What is taken now would go to the next group. */
		if (!takes_messages(cpg))
			result = CS_ERR_NOT_EXIST;
		else if (batch(cpg, vectors, count, length, safe))
			result = CS_OK;
		wake_writer(cpg);
		pthread_mutex_unlock(&cpg->out);
	}
	if (result == CS_ERR_TRY_AGAIN)
		wait_for_room(cpg, false);
	return is_sound(cpg) ? result : CS_ERR_LIBRARY;
}

cs_error_t cpg_mcast_joined(cpg_handle_t handle, cpg_guarantee_t guarantee, const struct iovec *iovec,
			    unsigned int iov_len)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cs_error_t result = send_message(cpg, guarantee, iovec, iov_len);
	cpg_let_go(cpg);
	return result;
}

cs_error_t cpg_zcb_alloc(cpg_handle_t handle, size_t size, void **buffer)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cpg_let_go(cpg);
	if (!buffer)
		return CS_ERR_INVALID_PARAM;
	*buffer = malloc(size ? size : 1);
	return *buffer ? CS_OK : CS_ERR_NO_MEMORY;
}

cs_error_t cpg_zcb_free(cpg_handle_t handle, void *buffer)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	cpg_let_go(cpg);
	free(buffer);
	return CS_OK;
}

cs_error_t cpg_zcb_mcast_joined(cpg_handle_t handle, cpg_guarantee_t guarantee, void *msg, size_t msg_len)
{
	const struct iovec vector = { .iov_base = msg, .iov_len = msg_len };
	return cpg_mcast_joined(handle, guarantee, &vector, 1);
}

cs_error_t cpg_flow_control_state_get(cpg_handle_t handle, cpg_flow_control_state_t *flow_control_state)
{
	struct cpg *cpg = cpg_hold(handle);
	if (!cpg)
		return CS_ERR_BAD_HANDLE;
	pthread_mutex_lock(&cpg->out);
	push(cpg, false);
	bool full = cpg->suspended || (link_unwritten(&cpg->link) && cpg->batch_length > BATCH_BYTES / 2);
	pthread_mutex_unlock(&cpg->out);
	*flow_control_state = full ? CPG_FLOW_CONTROL_ENABLED : CPG_FLOW_CONTROL_DISABLED;
	cpg_let_go(cpg);
	return CS_OK;
}
