/* UTF-8 (RFC 3629): checking, and cutting only between characters. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole and shortest-form, no surrogates, nothing above U+10FFFF. NUL bytes are allowed. */
bool utf8_is_valid(const char *text, size_t len);

/* Length of the longest prefix that does not end inside a character that more bytes could still
 * complete. Bytes that can never be part of a character count as complete. */
size_t utf8_complete_len(const char *text, size_t len);

/* Decodes one character; returns its length in bytes, 0 if there is no whole, valid one (*ret_char
 * is then untouched). */
size_t utf8_decode(const char *text, size_t len, uint32_t *ret_char);

/* Like utf8_decode, but accepts any bytes: an invalid sequence counts as one U+FFFD for each
 * longest run that could have begun a character (as Unicode advises). 0 only when len is 0. */
size_t utf8_next(const char *text, size_t len, uint32_t *ret_char);

/* The characters of a valid text that ends with NUL; on a terminal most take one column. */
size_t utf8_count(const char *text);

/* Whether a text that ends with NUL is one line to whoever looks at it: valid, no control
 * character, no end of a line, and none that turns the direction of what stands beside it. */
bool utf8_is_plain_line(const char *text);

/* Writes at most 4 bytes, returns how many. An invalid code point is written as U+FFFD. */
size_t utf8_encode(uint32_t character, char out[4]);

#endif
