/* What the parts of the library share.
 *
 *     request.c   operations: a struct becomes a line, and its reply a result
 *     client.c    the connection: what waits for what, and for how long
 *     event.c     a line of the agent becomes an event
 *     link.c      bytes and lines;  json.c  values */
#ifndef ANTIPHON_CLIENT_H
#define ANTIPHON_CLIENT_H

#include "antiphon.h"
#include "json.h"
#include "link.h"

#define OP_HELLO ((antiphon_op)100)
#define CAUSE_BYTES ANTIPHON_REASON_BYTES

struct owned_event {
	antiphon_event event; /* first: a pointer to it is one to this */
	struct owned_event *next;
	size_t size;
};

/* An operation that has no reply yet. */
struct pending {
	uint64_t id;
	antiphon_op op;
	bool forgotten;
	char *name; /* of a lock or a job */
};

struct antiphon {
	struct link link;
	struct json_document document;
	struct owned_event *first, **last;
	size_t queued, queued_bytes, most_bytes;
	struct pending *pending; /* in the order of their beginning */
	size_t pending_count, pending_capacity;
	uint64_t last_id;
	bool over;
	char cause[CAUSE_BYTES], last_words[CAUSE_BYTES];
	char *name, *node, *cluster, *build, *member;
};

/* event.c */
struct owned_event *event_new(antiphon_kind kind, size_t more);
/* The event of a line, which it changes; NULL if there is none to tell, with what is wrong if something
 * is. */
struct owned_event *event_of_line(antiphon *client, char *line, size_t length, const char **wrong);
/* Cuts at the end of a character. */
void copy_reason(char *to, size_t size, const char *reason);

/* client.c */
int fail(antiphon_error *error, antiphon_code code, antiphon_ran ran, const char *reason);
struct pending *find_pending(antiphon *client, uint64_t id);
struct pending *oldest_pending(antiphon *client, antiphon_op op);
/* Nothing is added beyond `most` operations under way. False: no memory. */
bool add_pending(antiphon *client, uint64_t id, antiphon_op op, const char *name);
void end_pending(antiphon *client, struct pending *pending);
/* Writes all that is to be written, and reads meanwhile: as long as there is room for events. */
void write_all(antiphon *client);
/* 0 if all before is written, so that there is at most one line that is not. */
int may_write(antiphon *client, antiphon_error *error);

/* request.c */
/* Puts the line of an operation to what is to be written; an id of 0 is left out. */
int put_request(antiphon *client, const antiphon_request *request, uint64_t id, antiphon_error *error);
/* If this is the reply that a lock or a leadership is granted, gives it back: nobody waits for it any
 * more. */
void give_back(antiphon *client, const antiphon_event *reply);

#endif
