/* Fields of a JSON object from a peer. An absent or null field leaves *out as it is and is OK; a
 * wrong type or range is STATUS_INVALID naming the field. */
#ifndef SERVER_JSON_FIELDS_H
#define SERVER_JSON_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Bounds of the values in a body, so that parsing does not hold up the loop for long. Numbers may
 * be the token ids of many texts; the others are strings, names, lists and objects. */
enum { FIELDS_MAX_NUMBERS = 1 << 19, FIELDS_MAX_OTHERS = 1 << 17 };

/* Makes jansson allocate with try_alloc. Called once, before any JSON is made, on the loop. */
void fields_init(void);

/* Does what json_loadb does, but strings may have the character U+0000, and an integer that a
 * json_int_t does not hold becomes a real. Returns NULL also when memory is short, and then sets
 * *ret_was_short. Called on the loop. */
json_t *fields_load(const char *text, size_t len, json_error_t *why, bool *ret_was_short);

/* Parses a body, which must be an object within these bounds. INVALID says where it is not. */
enum status fields_parse(json_t **out, const char *body, size_t len, struct error *err) MUST_CHECK;

/* The same for a body in which no name may be given twice. */
enum status fields_parse_strict(json_t **out, const char *body, size_t len,
                                struct error *err) MUST_CHECK;

/* Returns a field's value; NULL: the field is absent or null. */
const json_t *field(const json_t *object, const char *name);

enum status field_text(const char **out, const json_t *object, const char *name,
                       struct error *err) MUST_CHECK;
enum status field_bool(bool *out, const json_t *object, const char *name,
                       struct error *err) MUST_CHECK;
/* *ret_given may be NULL. */
enum status field_whole(int64_t *out, bool *ret_given, const json_t *object, const char *name,
                        int64_t min, int64_t max, struct error *err) MUST_CHECK;
/* Whether value is a whole number, spelt as an integer or as a real (3.0), that an int64_t holds.
 */
bool field_is_whole(const json_t *value, int64_t *out);
/* Whether value is a string without the character U+0000, which texts ended by NUL cannot hold. */
bool field_is_plain_text(const json_t *value);
/* Returns both texts, one behind the other, as a new reference; what is no string has no text.
 * NULL: there is no memory. */
json_t *fields_join(const json_t *a, const json_t *b) MUST_CHECK;
enum status field_object(const json_t **out, const json_t *object, const char *name,
                         struct error *err) MUST_CHECK;
enum status field_array(const json_t **out, const json_t *object, const char *name,
                        struct error *err) MUST_CHECK;
/* Reads the token ids in list, the value of the field of that name: [json_array_size(list)] in the
 * arena. The error says that want is expected: "a list of token ids". */
enum status field_token_ids(int32_t **out, const json_t *list, const char *name, const char *want,
                            struct arena *arena, struct error *err) MUST_CHECK;

/* Gives err's field, if that is its name, another name: in the text, too, which may begin with it.
 * Returns err->status. */
enum status field_rename(struct error *err, const char *from, const char *to);
/* The field of err is a member of the object of that name: "max_tokens" becomes
 * "reasoning.max_tokens". Returns err->status. */
enum status field_inside(struct error *err, const char *object);

/* The name of a member of a list's entry: "tools[3].type". member is ".type", or "". */
struct field_path {
    char text[64];
};
struct field_path field_path_of(const char *list, size_t i, const char *member);

/* Returns INVALID with the text "NAME must be WHAT, not a KIND". */
enum status field_wrong(struct error *err, const char *name, const char *what, const json_t *value);

#endif
