/* JSON of one line: read in place, written into a buffer that grows.
 *
 *     line ── json_parse ──► nodes in the order of the text, a parent before its children
 *
 * A reader of our own: strings are unescaped where they stand, so a message costs no allocation; numbers
 * keep 64 bits; strings may have NUL. The reader takes slightly more than JSON (raw control characters
 * in strings), and nothing that it takes can make it read or write outside of the line. */
#ifndef ANTIPHON_JSON_H
#define ANTIPHON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
	enum json_type type;
	uint32_t after;	 /* index of the node behind this one and all within it */
	uint32_t count;	 /* values directly within it */
	const char *key; /* in an object; ended by NUL */
	char *text;	 /* of a string, ended by NUL; of a number, not ended */
	size_t length;
};

/* Reused from line to line; all zeros at first. */
struct json_document {
	struct json *nodes;
	uint32_t count, capacity;
};

/* Parses `length` bytes, which it changes, and the one behind them, which it may. The root is node 0.
 * Returns what is wrong, or NULL. */
const char *json_parse(struct json_document *document, char *text, size_t length);
void json_free(struct json_document *document);

/* The value of this key, or NULL; also if `of` is NULL or no object. */
const struct json *json_member(const struct json_document *document, const struct json *of, const char *key);
/* The values within an array or an object, one after the other; NULL behind the last. */
const struct json *json_first(const struct json_document *document, const struct json *of);
const struct json *json_next(const struct json_document *document, const struct json *of, const struct json *value);

/* A string, or NULL. */
const char *json_string(const struct json *value);
/* A whole number, or a string of its digits. */
bool json_u64(const struct json *value, uint64_t *number);
bool json_i64(const struct json *value, int64_t *number);
bool json_is_true(const struct json *value);
/* The bytes of a payload, a string or {"base64":…}: decoded in place, so only once. */
bool json_payload(const struct json_document *document, const struct json *value, char **bytes, size_t *length);

/* Bytes that grow; all zeros at first. */
struct text {
	char *bytes;
	size_t length, capacity;
	bool failed; /* no memory: nothing more is added */
};

bool text_reserve(struct text *text, size_t more);
void text_add(struct text *text, const void *bytes, size_t length);
void text_add_string(struct text *text, const char *string);
void text_add_u64(struct text *text, uint64_t number);
void text_add_i64(struct text *text, int64_t number);
/* In quotes and escaped. What is not UTF-8 is replaced by U+FFFD. */
void text_add_quoted(struct text *text, const char *bytes, size_t length);
/* Whether a payload is UTF-8, and as a string about as short as in base64, or shorter. */
bool payload_is_text(const void *bytes, size_t length);
/* As a string if it is text, and in base64 otherwise. */
void text_add_payload(struct text *text, const void *bytes, size_t length);
/* A value and all within it. */
void text_add_json(struct text *text, const struct json_document *document, const struct json *value);
void text_free(struct text *text);

/* How many bytes from the start are UTF-8. */
size_t utf8_prefix(const char *bytes, size_t length);
size_t base64_length(size_t length);
/* Writes base64_length(length) bytes. */
void base64_encode(const void *bytes, size_t length, char *into);
/* May decode in place; `into` takes length / 4 * 3 bytes. False if it is no base64 (standard alphabet,
 * padded). */
bool base64_decode(const char *text, size_t length, void *into, size_t *decoded);

#endif
