/* Follows a JSON value character by character and says at once where it is none. It keeps no text,
 * and checks what the grammar of JSON says, but not that the text is UTF-8. */
#ifndef AGENTS_REPLY_JSON_SCAN_H
#define AGENTS_REPLY_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_SCAN_MAX_DEPTH = 512 };

enum json_scanned {
    JSON_SCAN_MORE,  /* so far it is one */
    JSON_SCAN_WHOLE, /* the character has ended the object or list */
    JSON_SCAN_WRONG, /* no JSON, or nested too deeply */
};

/* Zeroed: before a value. */
struct json_scan {
    uint8_t expects;  /* enum of json_scan.c */
    uint8_t n_hex;    /* digits of \uXXXX to come */
    const char *word; /* what is left of true, false, null */
    uint32_t depth;
    uint8_t lists[JSON_SCAN_MAX_DEPTH / 8]; /* a bit for each level: a list, not an object */
};

/* The value must be an object or a list, or be in one. */
enum json_scanned json_scan_add(struct json_scan *s, char c);
/* Behind a member of an object that is not in any other value. */
void json_scan_in_object(struct json_scan *s);
/* The text is one object. */
bool json_scan_is_object(const char *text, size_t len);

#endif
