/* A client of corosync's CPG that counts as its cpgbench does: a dispatch thread counts deliveries at its own node, the
 * main thread sends and tries again on CS_ERR_TRY_AGAIN. Told what to do on stdin, figures on stdout:
 *
 *   run SIZE WARMUP_S SECONDS SENDS             -> done DELIVERED SECONDS
 *   pace INTERVAL_NS SIZE WARMUP_S SECONDS OFFSET_NS -> lat NS (a message of another node, from the time it was due), ..., end
 *
 * It prints "members N" at every change of membership. */
#include <corosync/cpg.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_SAMPLES (8u << 20)

static cpg_handle_t handle;
static unsigned int own_node;
static _Atomic uint64_t delivered;
static _Atomic uint64_t from_ns, to_ns; /* latencies of messages due in between are taken */
static uint64_t *samples;
static _Atomic uint32_t sampled;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
	struct timespec at = { .tv_sec = ns / 1000000000u, .tv_nsec = ns % 1000000000u };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
		;
}

static void deliver(cpg_handle_t h, const struct cpg_name *g, uint32_t node, uint32_t pid, void *msg, size_t len)
{
	(void)h, (void)g, (void)pid;
	delivered++;
	uint64_t due_ns;
	if (len < sizeof due_ns || node == own_node)
		return;
	memcpy(&due_ns, msg, sizeof due_ns);
	if (due_ns >= from_ns && due_ns < to_ns) {
		uint32_t index = sampled;
		if (index < MAX_SAMPLES) {
			samples[index] = now_ns() - due_ns;
			sampled = index + 1;
		}
	}
}

static void change(cpg_handle_t h, const struct cpg_name *g, const struct cpg_address *members, size_t count,
		   const struct cpg_address *left, size_t lefts, const struct cpg_address *joined, size_t joins)
{
	(void)h, (void)g, (void)members, (void)left, (void)lefts, (void)joined, (void)joins;
	printf("members %zu\n", count);
	fflush(stdout);
}

static void *dispatch(void *unused)
{
	(void)unused;
	if (cpg_dispatch(handle, CS_DISPATCH_BLOCKING) != CS_OK) {
		puts("failed dispatch");
		exit(1);
	}
	return NULL;
}

/* One try; whether it was taken. */
static int mcast(void *message, size_t size)
{
	struct iovec iov = { .iov_base = message, .iov_len = size };
	cs_error_t res = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &iov, 1);
	if (res == CS_OK)
		return 1;
	if (res != CS_ERR_TRY_AGAIN) {
		printf("failed mcast %d\n", res);
		exit(1);
	}
	return 0;
}

static void run(size_t size, uint64_t warmup_s, uint64_t seconds, int sends)
{
	char *message = calloc(1, size);
	uint64_t from = now_ns() + warmup_s * 1000000000u, to = from + seconds * 1000000000u;
	uint64_t before = 0, began = 0, after = 0, ended = 0;
	/* A little longer than counted, so that the last to end is measured under the same load as the first. */
	while (now_ns() < to + 300000000u) {
		if (sends)
			mcast(message, size);
		else
			usleep(1000);
		if (!began && now_ns() >= from)
			before = delivered, began = now_ns();
		if (!ended && now_ns() >= to)
			after = delivered, ended = now_ns();
	}
	printf("done %" PRIu64 " %f\n", after - before, (double)(ended - began) / 1e9);
	fflush(stdout);
	free(message);
}

static void pace(uint64_t interval_ns, size_t size, uint64_t warmup_s, uint64_t seconds, uint64_t offset_ns)
{
	char *message = calloc(1, size);
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	sampled = 0;
	uint64_t due_ns = now_ns() + offset_ns;
	from_ns = now_ns() + warmup_s * 1000000000u;
	to_ns = from_ns + seconds * 1000000000u;
	for (; due_ns < to_ns; due_ns += interval_ns) {
		sleep_until(due_ns);
		memcpy(message, &due_ns, sizeof due_ns);
		while (!mcast(message, size))
			usleep(50);
	}
	sleep(1);
	to_ns = 0;
	for (uint32_t i = 0; i < sampled; i++)
		printf("lat %" PRIu64 "\n", samples[i]);
	puts("end");
	fflush(stdout);
	free(message);
}

int main(void)
{
	cpg_callbacks_t callbacks = { .cpg_deliver_fn = deliver, .cpg_confchg_fn = change };
	struct cpg_name group = { .length = 5, .value = "bench" };
	samples = malloc(MAX_SAMPLES * sizeof *samples);
	/* The daemon was started a moment ago. */
	for (int i = 0; cpg_initialize(&handle, &callbacks) != CS_OK; i++) {
		if (i == 300) {
			puts("failed initialize");
			return 1;
		}
		usleep(100000);
	}
	cpg_local_get(handle, &own_node);
	while (cpg_join(handle, &group) == CS_ERR_TRY_AGAIN)
		usleep(10000);
	pthread_t thread;
	pthread_create(&thread, NULL, dispatch, NULL);
	char line[256];
	while (fgets(line, sizeof line, stdin)) {
		uint64_t a, b, c, d, e;
		if (sscanf(line, "run %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c, &d) == 4)
			run(a, b, c, (int)d);
		else if (sscanf(line, "pace %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c, &d, &e) == 5)
			pace(a, b < 8 ? 8 : b, c, d, e);
	}
	_exit(0);
}
