/* What the parts of libcpg share.
 *
 *     program ── cpg_mcast_joined ──► out.c   a frame with many messages ──► the agent
 *             ◄── cpg_dispatch ────── in.c    items, in the order of the agent ◄──
 *                                     cpg.c   handles, joining and leaving
 *                                     list.c  which groups there are
 *
 * # A frame
 * What is a message for the agent is a frame here. Its first byte says what follows. It stands as it is
 * behind a line, both ways. All but the first kind is no UTF-8, so that programs that are told the
 * messages of a group in JSON get it in base64: zeros would take six times their bytes as text.
 *
 *     'm'    one message, which is text
 *     0xf8   one message
 *     0xf9   messages, each behind its length (LEB128)
 *     0xfa   a part of a message: 1 if it is the first, 2 if it is the last, 3 both; in the first the
 *            length of all (8 bytes, little-endian); bytes
 *
 * # Threads
 * Any thread may call anything. One at a time reads the socket, whichever waits for something: it puts
 * what it reads in its place and wakes the others. A thread of this library writes what no call is there
 * to write: messages that wait for the frame before them, or for room in the socket. It begins when
 * there is such a message, and not before. */
#ifndef CPG_CPG_H
#define CPG_CPG_H

#include <corosync/corotypes.h>
#include <corosync/cpg.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "json.h"
#include "link.h"
#include "names.h"

#define FRAME_TEXT 'm'
#define FRAME_ONE 0xf8
#define FRAME_MANY 0xf9
#define FRAME_PART 0xfa
#define PART_FIRST 1
#define PART_LAST 2

#define FRAME_BYTES 1048570	       /* the most that the agent takes */
#define BATCH_BYTES (32u << 10)	       /* of messages that go together */
#define MESSAGE_BYTES ((size_t)64 << 20) /* of one message, in parts */
#define QUEUE_BYTES ((size_t)64 << 20)   /* of items that wait while a call waits for its reply */

enum state { UNJOINED, JOINING, JOINED, LEAVING };
enum item_kind { ITEM_MESSAGES, ITEM_CHANGE, ITEM_TOTEM };

/* Something for cpg_dispatch. */
struct item {
	struct item *next;
	enum item_kind kind;
	size_t size; /* of the allocation */
	/* ITEM_MESSAGES: a frame, and what was delivered of it. */
	uint32_t nodeid, pid;
	unsigned char *frame;
	size_t length, done;
	/* ITEM_CHANGE: members, left, joined, one behind the other. ITEM_TOTEM: node ids, in `count`. */
	bool is_last; /* own leave */
	uint64_t number;
	size_t count[3];
	struct cpg_address addresses[];
};

/* A message of which not all parts are here. */
struct partial {
	struct partial *next;
	uint32_t nodeid, pid;
	size_t length, total;
	unsigned char bytes[] __attribute__((aligned(8)));
};

/* Waits for a reply. */
struct waiter {
	struct waiter *next;
	uint64_t id;
	bool done;
	cs_error_t error;
};

struct cpg {
	cpg_handle_t handle;
	atomic_int references;
	cpg_model_v1_data_t model;
	void *context;
	struct link link; /* its way in is the reader's, its way out is under `out` */
	char node[128];	  /* the name of the agent's node */
	uint32_t nodeid;
	pid_t pid; /* of the process when it said hello */
	char member[256];

	atomic_int state;
	atomic_bool over;      /* the connection, or what it told, is lost */
	atomic_bool mute;      /* nothing can be written any more; why, the reader finds out */
	atomic_bool finalized;
	atomic_bool suspended; /* no majority: nothing can be sent */
	atomic_bool leaves;    /* no message is taken any more; set under `out` */
	struct cpg_name group;
	char group_name[GROUP_BYTES];

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a reply, an item, the end, or that nobody reads any more */
	bool reading, dispatching;
	pthread_t dispatcher;
	struct cpg_name told_group; /* of the item that is delivered: its callback may join another one */
	struct json_document document; /* the reader's */
	struct item *first, **last;
	size_t behind; /* bytes behind the last line that are not read yet: the last ones of `arriving` */
	struct item *arriving; /* NULL: nobody needs them */
	size_t queued_bytes;
	struct waiter *waiters;
	int epoll, bell; /* what cpg_fd_get gives: readable for the socket, and while the bell rings */
	bool rings;
	struct cpg_address members[CPG_MEMBERS_MAX]; /* of the last view that was read */
	size_t member_count;
	struct partial *partials; /* of dispatch */
	unsigned char *aligned;	  /* a message of a frame with many, for the program */
	bool asks_lock; /* it has no reply yet */
	uint64_t lock_token;

	pthread_mutex_t parts; /* one message in parts at a time */
	pthread_mutex_t out;
	pthread_cond_t work; /* for the thread that writes */
	unsigned char batch[BATCH_BYTES];
	size_t batch_length, batch_start; /* `batch_start`: of the only message, behind its length */
	unsigned batch_count;
	bool batch_safe;
	atomic_int in_flight; /* frames that are not yet delivered */
	uint64_t last_id;
	pthread_t writer;
	bool has_writer, writer_waits;
};

/* Ids that say what a reply is to: two bits, then a number. */
#define ID_FRAME 1
#define ID_WAITER 2
#define ID_TOTEM 3
#define ID_OTHER 0
#define ID_LOCK_NUMBER 4 /* with ID_OTHER: of the lock that says that this member lives */

/* cpg.c */
struct cpg *cpg_hold(cpg_handle_t handle);
void cpg_let_go(struct cpg *cpg);
/* Calls a function for each handle, which it may not keep. */
void cpg_each(void (*function)(struct cpg *cpg, void *user), void *user);
/* Where the agent is: $ANTIPHON_SOCKET. */
const char *agent_address(void);
/* Says on standard error, once for each handle, why it is over. */
void cpg_lose(struct cpg *cpg, const char *cause);

/* in.c */
/* Reads until a reply is there. */
cs_error_t wait_reply(struct cpg *cpg, struct waiter *waiter, int timeout_ms);
/* Reads once, if nobody else does, and waits so long for something to read; otherwise waits for that
 * reader. With the lock held. */
void read_some(struct cpg *cpg, int timeout_ms);
void free_items(struct cpg *cpg);
/* Whether callbacks of a group are still to come. With the lock held. */
bool has_callbacks(const struct cpg *cpg);
void ring(struct cpg *cpg, bool rings);
void enqueue(struct cpg *cpg, struct item *item);
/* A change of the group: `old` behind itself. */
struct item *new_item(enum item_kind kind, size_t addresses, size_t more);
/* Gives back the lock that says that this member lives. */
void put_unlock(struct cpg *cpg, uint64_t token);

/* out.c */
uint64_t new_id(struct cpg *cpg, uint64_t kind);
/* Writes what can be written now; `force`: also what would better wait for the frame before it. Under
 * `out`. */
void push(struct cpg *cpg, bool force);
/* Puts the beginning of a line, {"OP":{; more is added to cpg->link.out. Under `out`. */
void put_line(struct cpg *cpg, const char *text);
/* Waits until all messages are delivered. False: it is over, or got no further for so long. */
bool drain(struct cpg *cpg, int timeout_ms);
void stop_writer(struct cpg *cpg);

#endif
