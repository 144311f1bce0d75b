/* The reader and the writer of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "json.h"

static struct json_document document;

/* In a block of exactly its bytes, so that a sanitizer sees one read or written too far. */
static char *parsed(const char *text, const char **wrong)
{
	static char *copy;
	free(copy);
	size_t length = strlen(text);
	copy = malloc(length + 1);
	memcpy(copy, text, length + 1);
	*wrong = json_parse(&document, copy, length);
	return copy;
}

static const struct json *root(const char *text)
{
	const char *wrong;
	parsed(text, &wrong);
	if (wrong) {
		fprintf(stderr, "%s: %s\n", text, wrong);
		failed = 1;
	}
	return document.nodes;
}

static void what_is_json_is_read(void)
{
	const struct json *of = root(" {\"a\":[1,-2,{\"x\":[]}],\"b\":\"\",\"c\":null, \"d\" : true} ");
	CHECK(of->type == JSON_OBJECT && of->count == 4);
	const struct json *a = json_member(&document, of, "a");
	CHECK(a->type == JSON_ARRAY && a->count == 3);
	int64_t number;
	const struct json *one = json_first(&document, a);
	CHECK(json_i64(one, &number) && number == 1);
	one = json_next(&document, a, one);
	CHECK(json_i64(one, &number) && number == -2);
	one = json_next(&document, a, one);
	CHECK(one->type == JSON_OBJECT && json_member(&document, one, "x")->type == JSON_ARRAY);
	CHECK(!json_next(&document, a, one));
	CHECK(!*json_string(json_member(&document, of, "b")));
	CHECK(json_member(&document, of, "c")->type == JSON_NULL);
	CHECK(json_is_true(json_member(&document, of, "d")));
	CHECK(!json_member(&document, of, "e") && !json_member(&document, NULL, "a"));
	CHECK(root("[]")->count == 0 && root("{}")->count == 0 && root("17")->type == JSON_NUMBER);
}

static void what_is_no_json_is_refused(void)
{
	static const char *const texts[] = { "", " ", "{", "[", "[1", "[1,", "[1,]", "[,]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
					     "{a:1}", "\"", "\"\\", "\"\\\"", "\"\\u12\"", "\"\\ud800\"", "\"\\ud800\\u0041\"",
					     "\"\\x\"", "1 2", "]", "{]", "[}", "nul", "tru", "{\"a\":1}}", "[1}", ":", "@" };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		const char *wrong;
		parsed(texts[i], &wrong);
		if (!wrong) {
			fprintf(stderr, "taken for JSON: %s\n", texts[i]);
			failed = 1;
		}
	}
	char deep[200];
	memset(deep, '[', sizeof deep - 1);
	deep[sizeof deep - 1] = 0;
	const char *wrong;
	parsed(deep, &wrong);
	CHECK(wrong && !strcmp(wrong, "too deep"));
}

static void strings_keep_their_bytes(void)
{
	const struct json *of = root("\"a\\n\\t\\\"\\\\\\/\\u0000\\u00e9\\ud83c\\udf89z\"");
	CHECK(of->length == 14 && !memcmp(of->text, "a\n\t\"\\/\0\xc3\xa9\xf0\x9f\x8e\x89z", 14));
	/* Escapes all over a long string take a time that grows with its length alone. */
	size_t length = 4 << 20;
	char *text = malloc(length + 3);
	text[0] = '"';
	for (size_t i = 0; i < length; i += 4)
		memcpy(text + 1 + i, "ab\\n", 4);
	memcpy(text + 1 + length, "\"", 2);
	CHECK(!json_parse(&document, text, length + 2));
	CHECK(document.nodes->length == length / 4 * 3);
	free(text);
}

static void numbers_have_64_bits(void)
{
	uint64_t big;
	int64_t small;
	CHECK(json_u64(root("18446744073709551615"), &big) && big == UINT64_MAX);
	CHECK(json_u64(root("\"287953921052147713\""), &big) && big == 287953921052147713u);
	CHECK(!json_u64(root("18446744073709551616"), &big) && !json_u64(root("-1"), &big));
	CHECK(!json_u64(root("1.5"), &big) && !json_u64(root("\"\""), &big) && !json_u64(root("null"), &big));
	CHECK(json_i64(root("-9223372036854775808"), &small) && small == INT64_MIN);
	CHECK(!json_i64(root("-9223372036854775809"), &small) && !json_i64(root("9223372036854775808"), &small));
}

/* What is written is read as it was. */
static void check_payload(const char *bytes, size_t length, const char *beginning)
{
	struct text text = { 0 };
	text_add_payload(&text, bytes, length);
	CHECK(text.length >= strlen(beginning) && !memcmp(text.bytes, beginning, strlen(beginning)));
	text_add(&text, "", 1);
	char *back;
	size_t back_length;
	CHECK(!json_parse(&document, text.bytes, text.length - 1));
	CHECK(json_payload(&document, document.nodes, &back, &back_length));
	CHECK(back_length == length && !memcmp(back, bytes, length));
	text_free(&text);
}

static void payloads_go_there_and_back(void)
{
	check_payload("", 0, "\"\"");
	check_payload("hello", 5, "\"hello\"");
	check_payload("gr\xc3\xbc\xc3\x9f" "e \0 \n \"q\" \\ \x1f", 19, "\"");
	check_payload("\xff\x00\xfe", 3, "{\"base64\":\"/wD+\"}");
	/* In base64 this is shorter. */
	char zeros[64] = { 0 };
	check_payload(zeros, sizeof zeros, "{");
	srand(1);
	for (int round = 0; round < 20000; round++) {
		char bytes[200];
		size_t length = (size_t)rand() % sizeof bytes;
		int range = round % 3 ? 256 : 128;
		for (size_t i = 0; i < length; i++)
			bytes[i] = (char)(rand() % range);
		check_payload(bytes, length, "");
	}
}

static void utf8_is_what_the_standard_says(void)
{
	static const struct { const char *bytes; size_t valid; } cases[] = {
		{ "plain ascii of more than eight", 30 }, { "\xc3\xa9", 2 }, { "a\xc3", 1 }, { "\xc0\xaf", 0 }, { "\xe0\x9f\xbf", 0 },
		{ "\xed\xa0\x80", 0 }, { "\xed\x9f\xbf", 3 }, { "\xf0\x9f\x8e\x89", 4 }, { "\xf4\x90\x80\x80", 0 },
		{ "\xf0\x8f\xbf\xbf", 0 }, { "\x80", 0 }, { "12345678\xff", 8 } };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		CHECK(utf8_prefix(cases[i].bytes, strlen(cases[i].bytes)) == cases[i].valid);
	struct text text = { 0 };
	text_add_quoted(&text, "a\xff\xfe" "b", 4);
	CHECK(text.length == 10 && !memcmp(text.bytes, "\"a\xef\xbf\xbd\xef\xbf\xbd" "b\"", 10));
	text_free(&text);
}

static void base64_is_strict(void)
{
	static const char *const wrong[] = { "A", "AA", "AAA", "AA=A", "A===", "====", "AB==", "AAB=", "AA-_", "AA==AAAA" };
	char into[16];
	size_t length;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		CHECK(!base64_decode(wrong[i], strlen(wrong[i]), into, &length));
	CHECK(base64_decode("", 0, into, &length) && !length);
	CHECK(base64_decode("AA==", 4, into, &length) && length == 1 && !into[0]);
}

static void base64_of_many_bytes_has_the_digits_of_their_bits(void)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned char bytes[192], back[192];
	char text[256];
	size_t length;
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i * 37 + (i >> 3));
	base64_encode(bytes, sizeof bytes, text);
	for (size_t i = 0; i < sizeof text; i++) {
		unsigned two = (unsigned)bytes[i * 6 / 8] << 8 | (i * 6 / 8 + 1 < sizeof bytes ? bytes[i * 6 / 8 + 1] : 0);
		CHECK(text[i] == digits[two >> (10 - i * 6 % 8) & 63]);
	}
	CHECK(base64_decode(text, sizeof text, back, &length) && length == sizeof bytes && !memcmp(back, bytes, length));
	for (size_t place = 0; place < sizeof text; place++) {
		char was = text[place];
		for (int c = 1; c < 256; c++) {
			text[place] = (char)c;
			CHECK(c == '=' || base64_decode(text, sizeof text, back, &length) == !!strchr(digits, c));
		}
		text[place] = was;
	}
}

int main(void)
{
	what_is_json_is_read();
	what_is_no_json_is_refused();
	strings_keep_their_bytes();
	numbers_have_64_bits();
	payloads_go_there_and_back();
	utf8_is_what_the_standard_says();
	base64_is_strict();
	base64_of_many_bytes_has_the_digits_of_their_bits();
	json_free(&document);
	puts(failed ? "json: FAILED" : "json: passed");
	return failed;
}
