#include "json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32
#define MAX_NODES (1u << 20)

struct parser {
	struct json_document *document;
	char *at, *end;
};

static bool add_node(struct json_document *document, enum json_type type, const char *key)
{
	if (document->count == document->capacity) {
		uint32_t capacity = document->capacity ? document->capacity * 2 : 64;
		if (capacity > MAX_NODES)
			return false;
		struct json *nodes = realloc(document->nodes, capacity * sizeof *nodes);
		if (!nodes)
			return false;
		document->nodes = nodes;
		document->capacity = capacity;
	}
	document->nodes[document->count++] = (struct json){ .type = type, .key = key };
	return true;
}

static void skip_space(struct parser *parser)
{
	while (parser->at < parser->end && (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\r' ||
					    *parser->at == '\n'))
		parser->at++;
}

static bool hex4(const char *at, const char *end, uint32_t *code)
{
	if (end - at < 4)
		return false;
	*code = 0;
	for (int i = 0; i < 4; i++) {
		char c = at[i];
		uint32_t digit;
		if (c >= '0' && c <= '9')
			digit = (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			digit = (uint32_t)((c | 32) - 'a' + 10);
		else
			return false;
		*code = *code << 4 | digit;
	}
	return true;
}

static char *put_utf8(char *to, uint32_t code)
{
	if (code < 0x80) {
		*to++ = (char)code;
	} else if (code < 0x800) {
		*to++ = (char)(0xc0 | code >> 6);
		*to++ = (char)(0x80 | (code & 63));
	} else if (code < 0x10000) {
		*to++ = (char)(0xe0 | code >> 12);
		*to++ = (char)(0x80 | (code >> 6 & 63));
		*to++ = (char)(0x80 | (code & 63));
	} else {
		*to++ = (char)(0xf0 | code >> 18);
		*to++ = (char)(0x80 | (code >> 12 & 63));
		*to++ = (char)(0x80 | (code >> 6 & 63));
		*to++ = (char)(0x80 | (code & 63));
	}
	return to;
}

/* One escape; `at` is behind the backslash. What it stands for is never longer than itself. */
static const char *unescape(struct parser *parser, char **to)
{
	static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
	if (parser->at == parser->end)
		return "a string ends within an escape";
	char letter = *parser->at++;
	const char *found = letter ? strchr(letters, letter) : NULL;
	if (found) {
		*(*to)++ = meanings[found - letters];
		return NULL;
	}
	uint32_t code, low;
	if (letter != 'u' || !hex4(parser->at, parser->end, &code))
		return "an escape that JSON does not have";
	parser->at += 4;
	if (code >= 0xd800 && code < 0xdc00 && parser->end - parser->at >= 6 && parser->at[0] == '\\' &&
	    parser->at[1] == 'u' && hex4(parser->at + 2, parser->end, &low) && low >= 0xdc00 && low < 0xe000) {
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
		parser->at += 6;
	}
	if (code >= 0xd800 && code < 0xe000)
		return "half a surrogate pair";
	*to = put_utf8(*to, code);
	return NULL;
}

/* `at` is behind the opening quote. */
static const char *parse_string(struct parser *parser, char **text, size_t *length)
{
	char *to = parser->at, *quote = NULL;
	*text = to;
	for (;;) {
		/* Not again for each escape: a long string may have many. */
		if (!quote || quote < parser->at)
			quote = memchr(parser->at, '"', (size_t)(parser->end - parser->at));
		if (!quote)
			return "a string has no end";
		char *escape = memchr(parser->at, '\\', (size_t)(quote - parser->at));
		size_t plain = (size_t)((escape ? escape : quote) - parser->at);
		if (to != parser->at)
			memmove(to, parser->at, plain);
		to += plain;
		if (!escape) {
			*to = 0;
			*length = (size_t)(to - *text);
			parser->at = quote + 1;
			return NULL;
		}
		parser->at = escape + 1;
		const char *wrong = unescape(parser, &to);
		if (wrong)
			return wrong;
		/* A run of escapes, without a search for each. */
		while (parser->at < parser->end && *parser->at == '\\') {
			parser->at++;
			if ((wrong = unescape(parser, &to)))
				return wrong;
		}
	}
}

static const char *parse_word(struct parser *parser, struct json *node)
{
	static const struct { const char *word; enum json_type type; } words[] = {
		{ "null", JSON_NULL }, { "false", JSON_FALSE }, { "true", JSON_TRUE } };
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		size_t length = strlen(words[i].word);
		if ((size_t)(parser->end - parser->at) >= length && !memcmp(parser->at, words[i].word, length)) {
			node->type = words[i].type;
			parser->at += length;
			return NULL;
		}
	}
	node->type = JSON_NUMBER;
	node->text = parser->at;
	while (parser->at < parser->end && *parser->at && strchr("+-.0123456789eE", *parser->at))
		parser->at++;
	node->length = (size_t)(parser->at - node->text);
	return node->length ? NULL : "neither a value nor an end";
}

const char *json_parse(struct json_document *document, char *text, size_t length)
{
	struct parser parser = { document, text, text + length };
	uint32_t open[MAX_DEPTH], depth = 0;
	const char *wrong;
	document->count = 0;
	for (;;) {
		/* A value; in an object behind its key. */
		char *key = NULL;
		size_t key_length;
		skip_space(&parser);
		bool in_object = depth && document->nodes[open[depth - 1]].type == JSON_OBJECT;
		bool first = depth && !document->nodes[open[depth - 1]].count;
		bool empty = first && parser.at < parser.end && *parser.at == (in_object ? '}' : ']');
		if (!empty) {
			if (in_object) {
				if (parser.at == parser.end || *parser.at++ != '"')
					return "a key is missing";
				if ((wrong = parse_string(&parser, &key, &key_length)))
					return wrong;
				skip_space(&parser);
				if (parser.at == parser.end || *parser.at++ != ':')
					return "a colon is missing";
				skip_space(&parser);
			}
			if (parser.at == parser.end)
				return "it ends too early";
			if (depth)
				document->nodes[open[depth - 1]].count++;
			if (!add_node(document, JSON_NULL, key))
				return "too many values";
			struct json *node = &document->nodes[document->count - 1];
			if (*parser.at == '{' || *parser.at == '[') {
				if (depth == MAX_DEPTH)
					return "too deep";
				node->type = *parser.at++ == '{' ? JSON_OBJECT : JSON_ARRAY;
				open[depth++] = document->count - 1;
				continue;
			}
			if (*parser.at == '"') {
				parser.at++;
				node->type = JSON_STRING;
				wrong = parse_string(&parser, &node->text, &node->length);
			} else {
				wrong = parse_word(&parser, node);
			}
			if (wrong)
				return wrong;
			node->after = document->count;
		}
		/* What ends here, and then a comma. */
		for (;;) {
			skip_space(&parser);
			if (!depth)
				return parser.at == parser.end ? NULL : "something behind the value";
			if (parser.at == parser.end)
				return "it ends too early";
			struct json *around = &document->nodes[open[depth - 1]];
			char c = *parser.at++;
			if (c == ',' && !empty)
				break;
			if (c != (around->type == JSON_OBJECT ? '}' : ']'))
				return "a comma or an end is missing";
			around->after = document->count;
			empty = false;
			depth--;
		}
	}
}

void json_free(struct json_document *document)
{
	free(document->nodes);
	*document = (struct json_document){ 0 };
}

const struct json *json_first(const struct json_document *document, const struct json *of)
{
	if (!of || !of->count)
		return NULL;
	(void)document;
	return of + 1;
}

const struct json *json_next(const struct json_document *document, const struct json *of, const struct json *value)
{
	return value->after < of->after ? &document->nodes[value->after] : NULL;
}

const struct json *json_member(const struct json_document *document, const struct json *of, const char *key)
{
	if (!of || of->type != JSON_OBJECT)
		return NULL;
	for (const struct json *value = json_first(document, of); value; value = json_next(document, of, value))
		if (!strcmp(value->key, key))
			return value;
	return NULL;
}

const char *json_string(const struct json *value)
{
	return value && value->type == JSON_STRING ? value->text : NULL;
}

bool json_u64(const struct json *value, uint64_t *number)
{
	if (!value || (value->type != JSON_NUMBER && value->type != JSON_STRING) || !value->length)
		return false;
	uint64_t sum = 0;
	for (size_t i = 0; i < value->length; i++) {
		unsigned digit = (unsigned char)value->text[i] - (unsigned)'0';
		if (digit > 9 || __builtin_mul_overflow(sum, 10, &sum) || __builtin_add_overflow(sum, digit, &sum))
			return false;
	}
	*number = sum;
	return true;
}

bool json_i64(const struct json *value, int64_t *number)
{
	if (!value || !value->length)
		return false;
	struct json digits = *value;
	bool negative = value->text && *value->text == '-';
	digits.text += negative;
	digits.length -= negative;
	uint64_t size;
	if (!json_u64(&digits, &size) || size > (uint64_t)INT64_MAX + negative)
		return false;
	*number = negative ? (int64_t)(0 - size) : (int64_t)size;
	return true;
}

bool json_is_true(const struct json *value)
{
	return value && value->type == JSON_TRUE;
}

bool json_payload(const struct json_document *document, const struct json *value, char **bytes, size_t *length)
{
	if (!value)
		return false;
	if (value->type == JSON_STRING) {
		*bytes = value->text;
		*length = value->length;
		return true;
	}
	const struct json *base64 = json_member(document, value, "base64");
	if (!json_string(base64) || !base64_decode(base64->text, base64->length, base64->text, length))
		return false;
	*bytes = base64->text;
	return true;
}

bool text_reserve(struct text *text, size_t more)
{
	size_t needed = 0, capacity = text->capacity ? text->capacity : 256;
	if (text->failed || __builtin_add_overflow(text->length, more, &needed))
		text->failed = true;
	if (text->failed || needed <= text->capacity)
		return !text->failed;
	while (capacity < needed)
		capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
	char *bytes = realloc(text->bytes, capacity);
	if (!bytes) {
		text->failed = true;
		return false;
	}
	text->bytes = bytes;
	text->capacity = capacity;
	return true;
}

void text_add(struct text *text, const void *bytes, size_t length)
{
	if (length && text_reserve(text, length)) {
		memcpy(text->bytes + text->length, bytes, length);
		text->length += length;
	}
}

void text_add_string(struct text *text, const char *string)
{
	text_add(text, string, strlen(string));
}

void text_add_u64(struct text *text, uint64_t number)
{
	char digits[20], *at = digits + sizeof digits;
	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	text_add(text, at, (size_t)(digits + sizeof digits - at));
}

void text_add_i64(struct text *text, int64_t number)
{
	if (number < 0)
		text_add(text, "-", 1);
	text_add_u64(text, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

/* How many bytes an escape of this character takes, or 1 without one. */
static unsigned escaped_length(unsigned char c)
{
	if (c >= 0x20 && c != '"' && c != '\\')
		return 1;
	return c >= 0x20 || c == '\n' || c == '\r' || c == '\t' ? 2 : 6;
}

static void add_escaped(struct text *text, const char *bytes, size_t length)
{
	if (!text_reserve(text, length * 6))
		return;
	char *to = text->bytes + text->length;
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)bytes[i];
		if (c >= 0x20 && c != '"' && c != '\\') {
			*to++ = (char)c;
			continue;
		}
		*to++ = '\\';
		if (c == '\n' || c == '\r' || c == '\t') {
			*to++ = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
		} else if (c >= 0x20) {
			*to++ = (char)c;
		} else {
			memcpy(to, "u00", 3);
			to[3] = (char)('0' + (c >> 4));
			to[4] = "0123456789abcdef"[c & 15];
			to += 5;
		}
	}
	text->length = (size_t)(to - text->bytes);
}

void text_add_quoted(struct text *text, const char *bytes, size_t length)
{
	text_add(text, "\"", 1);
	for (;;) {
		size_t valid = utf8_prefix(bytes, length);
		add_escaped(text, bytes, valid);
		if (valid == length)
			break;
		text_add_string(text, "\xef\xbf\xbd");
		bytes += valid + 1;
		length -= valid + 1;
	}
	text_add(text, "\"", 1);
}

bool payload_is_text(const void *bytes, size_t length)
{
	const char *chars = bytes;
	size_t escaped = 0, most = base64_length(length) + sizeof "{\"base64\":}" - 1;
	if (utf8_prefix(chars, length) != length)
		return false;
	for (size_t i = 0; i < length && escaped <= most; i++)
		escaped += escaped_length((unsigned char)chars[i]);
	return escaped <= most;
}

void text_add_payload(struct text *text, const void *bytes, size_t length)
{
	if (payload_is_text(bytes, length)) {
		text_add(text, "\"", 1);
		add_escaped(text, bytes, length);
		text_add(text, "\"", 1);
		return;
	}
	text_add_string(text, "{\"base64\":\"");
	if (text_reserve(text, base64_length(length))) {
		base64_encode(bytes, length, text->bytes + text->length);
		text->length += base64_length(length);
	}
	text_add_string(text, "\"}");
}

void text_add_json(struct text *text, const struct json_document *document, const struct json *value)
{
	static const char *const words[] = { [JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true" };
	bool is_object = value->type == JSON_OBJECT;
	if (value->type <= JSON_TRUE)
		return text_add_string(text, words[value->type]);
	if (value->type == JSON_NUMBER)
		return text_add(text, value->text, value->length);
	if (value->type == JSON_STRING)
		return text_add_quoted(text, value->text, value->length);
	text_add_string(text, is_object ? "{" : "[");
	const struct json *first = json_first(document, value);
	for (const struct json *one = first; one; one = json_next(document, value, one)) {
		if (one != first)
			text_add_string(text, ",");
		if (is_object) {
			text_add_quoted(text, one->key, strlen(one->key));
			text_add_string(text, ":");
		}
		text_add_json(text, document, one); /* as deep as the reader takes it */
	}
	text_add_string(text, is_object ? "}" : "]");
}

void text_free(struct text *text)
{
	free(text->bytes);
	*text = (struct text){ 0 };
}

/* The length of the character at `at`, or 0: no overlong forms, no surrogates, nothing above U+10FFFF. */
static size_t utf8_character(const unsigned char *at, size_t left)
{
	unsigned char first = at[0], lowest = 0x80, highest = 0xbf;
	size_t length;
	if (first < 0x80)
		return 1;
	if (first >= 0xc2 && first <= 0xdf) {
		length = 2;
	} else if (first >= 0xe0 && first <= 0xef) {
		length = 3;
		lowest = first == 0xe0 ? 0xa0 : 0x80;
		highest = first == 0xed ? 0x9f : 0xbf;
	} else if (first >= 0xf0 && first <= 0xf4) {
		length = 4;
		lowest = first == 0xf0 ? 0x90 : 0x80;
		highest = first == 0xf4 ? 0x8f : 0xbf;
	} else {
		return 0;
	}
	if (left < length || at[1] < lowest || at[1] > highest)
		return 0;
	for (size_t i = 2; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

size_t utf8_prefix(const char *bytes, size_t length)
{
	const unsigned char *at = (const unsigned char *)bytes;
	size_t i = 0;
	while (i < length) {
		uint64_t eight;
		if (length - i >= 8 && (memcpy(&eight, at + i, 8), !(eight & 0x8080808080808080u))) {
			i += 8;
			continue;
		}
		size_t step = utf8_character(at + i, length - i);
		if (!step)
			break;
		i += step;
	}
	return i;
}

size_t base64_length(size_t length)
{
	return (length + 2) / 3 * 4;
}

static const char alphabet[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *bytes, size_t length, char *into)
{
	const unsigned char *from = bytes;
	size_t i = 0;
	for (; i + 3 <= length; i += 3, into += 4) {
		uint32_t three = (uint32_t)from[i] << 16 | (uint32_t)from[i + 1] << 8 | from[i + 2];
		into[0] = alphabet[three >> 18];
		into[1] = alphabet[three >> 12 & 63];
		into[2] = alphabet[three >> 6 & 63];
		into[3] = alphabet[three & 63];
	}
	if (i == length)
		return;
	uint32_t rest = (uint32_t)from[i] << 16 | (i + 1 < length ? (uint32_t)from[i + 1] << 8 : 0);
	into[0] = alphabet[rest >> 18];
	into[1] = alphabet[rest >> 12 & 63];
	into[2] = i + 1 < length ? alphabet[rest >> 6 & 63] : '=';
	into[3] = '=';
}

/* 64 for what the alphabet does not have. */
static const unsigned char digits[256] = {
#define NONE8 64, 64, 64, 64, 64, 64, 64, 64
	NONE8, NONE8, NONE8, NONE8, NONE8, 64, 64, 64, 62, 64, 64, 64, 63,
	52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 64, 64, 64, 64, 64, 64,
	64, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
	64, 64, 64, 64, 64,
	64, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,
	64, 64, 64, 64, 64,
	NONE8, NONE8, NONE8, NONE8, NONE8, NONE8, NONE8, NONE8,
	NONE8, NONE8, NONE8, NONE8, NONE8, NONE8, NONE8, NONE8,
};

bool base64_decode(const char *text, size_t length, void *into, size_t *decoded)
{
	const unsigned char *from = (const unsigned char *)text;
	unsigned char *to = into;
	*decoded = 0;
	if (length % 4)
		return false;
	if (!length)
		return true;
	size_t padded = from[length - 1] != '=' ? 0 : from[length - 2] != '=' ? 1 : 2;
	size_t whole = length - (padded ? 4 : 0);
	unsigned char wrong = 0;
	for (size_t i = 0; i < whole; i += 4, to += 3) {
		unsigned a = digits[from[i]], b = digits[from[i + 1]], c = digits[from[i + 2]], d = digits[from[i + 3]];
		wrong |= (unsigned char)(a | b | c | d);
		uint32_t three = a << 18 | b << 12 | c << 6 | d;
		to[0] = (unsigned char)(three >> 16);
		to[1] = (unsigned char)(three >> 8);
		to[2] = (unsigned char)three;
	}
	if (padded) {
		unsigned a = digits[from[whole]], b = digits[from[whole + 1]], c = padded == 1 ? digits[from[whole + 2]] : 0;
		wrong |= (unsigned char)(a | b | c);
		*to++ = (unsigned char)(a << 2 | b >> 4);
		if (padded == 1)
			*to++ = (unsigned char)(b << 4 | c >> 2);
		/* Bits behind the end are zero, so each text stands for other bytes. */
		wrong |= (unsigned char)(((padded == 1 ? c & 3 : b & 15) != 0) << 6);
	}
	*decoded = (size_t)(to - (unsigned char *)into);
	return !(wrong & 64);
}
