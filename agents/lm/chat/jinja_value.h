/* Values of a chat template while it is rendered. Strings know the origin of each byte: the
 * template or somebody else. All memory is the render's arena; nothing is freed before the render
 * ends. Functions that return bool return false on failure, and the run's error says why. Any
 * thread; a run belongs to one. */
#ifndef AGENTS_LM_CHAT_JINJA_VALUE_H
#define AGENTS_LM_CHAT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/arena.h"
#include "base/status.h"

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST, /* lists and tuples */
    JINJA_MAP,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION,
};

/* Who wrote a byte. */
enum jinja_origin { JINJA_OF_TEMPLATE, JINJA_OF_CALLER };

/* A string; immutable, so parts of it share its bytes. */
struct jinja_text {
    const char *data;
    const uint8_t *origins; /* [len] enum jinja_origin; NULL: all are origin */
    size_t len;
    uint8_t origin;
};

struct jinja_loop;
struct jinja_macro;

struct jinja_value {
    enum jinja_kind kind;
    bool is_tuple; /* of a list */
    union {
        bool flag;
        int64_t number;
        double real;
        const struct jinja_text *text;
        struct jinja_list *list;
        struct jinja_map *map; /* also a namespace's */
        struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_method *method;
        int function;     /* of jinja_functions */
        const char *name; /* of an undefined value, for messages; may be NULL */
    } as;
};

struct jinja_list {
    struct jinja_value *items; /* [n] */
    size_t n, cap;
};

/* In order of insertion. */
struct jinja_map {
    struct jinja_pair *pairs; /* [n] */
    size_t n, cap;
};

struct jinja_pair {
    struct jinja_value key, value;
};

/* A method that is not called yet. */
struct jinja_method {
    struct jinja_value self;
    const char *name;
};

/* The state of a render: what it may still use, and its error. */
struct jinja_run {
    struct arena *arena;
    const struct jinja *template;
    struct jinja_value *globals; /* [names of the template] */
    const struct tm *now;        /* for strftime_now */
    uint64_t steps_left;
    unsigned depth; /* of nested calls of the renderer */
    uint32_t line;  /* of the template, for messages */
    struct error *err;
};

/* A growing string. */
struct jinja_text_builder {
    char *data;       /* [cap] */
    uint8_t *origins; /* [cap] */
    size_t len, cap;
};

enum { JINJA_MAX_DEPTH = 600 };

/* Sets the error, INVALID, with the template's line; returns false. */
bool jinja_fail(struct jinja_run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Counts n_bytes of work; false if the render has used up its steps. */
bool jinja_charge(struct jinja_run *r, size_t n_bytes) MUST_CHECK;
void *jinja_take(struct jinja_run *r, size_t n, size_t size_bytes) MUST_CHECK; /* NULL: failed */
bool jinja_enter(struct jinja_run *r) MUST_CHECK; /* one level deeper; r->depth-- leaves it */

struct jinja_value jinja_bool(bool flag);
struct jinja_value jinja_int(int64_t number);
struct jinja_value jinja_float(double real);
struct jinja_value jinja_none(void);
struct jinja_value jinja_undefined(const char *name);
/* Borrows data until the render ends. */
bool jinja_string(struct jinja_run *r, const char *data, size_t len, enum jinja_origin origin,
                  struct jinja_value *out) MUST_CHECK;
bool jinja_part(struct jinja_run *r, const struct jinja_text *of, size_t from, size_t to,
                struct jinja_value *out) MUST_CHECK;
bool jinja_list_new(struct jinja_run *r, size_t cap, struct jinja_value *out) MUST_CHECK;
bool jinja_list_push(struct jinja_run *r, struct jinja_list *l, struct jinja_value v) MUST_CHECK;
bool jinja_map_new(struct jinja_run *r, size_t cap, struct jinja_value *out) MUST_CHECK;
/* Adds the pair or changes its value. */
bool jinja_map_set(struct jinja_run *r, struct jinja_map *m, struct jinja_value key,
                   struct jinja_value value) MUST_CHECK;
/* For a key of a known name. */
bool jinja_map_put(struct jinja_run *r, struct jinja_map *m, const char *key,
                   struct jinja_value value) MUST_CHECK;
struct jinja_value *jinja_map_find(const struct jinja_map *m, const char *key, size_t len);
/* *ret is NULL if there is no such key. */
bool jinja_map_get(struct jinja_run *r, const struct jinja_map *m, struct jinja_value key,
                   struct jinja_value **ret) MUST_CHECK;

bool jinja_is_true(struct jinja_value v);
bool jinja_is_text(struct jinja_value v, const char *text);
/* Also of bool, as Python counts it. */
bool jinja_is_number(struct jinja_value v);
double jinja_as_real(struct jinja_value v);
bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                 bool *ret) MUST_CHECK;
/* *ret < 0, 0, > 0; values without order fail. */
bool jinja_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                   int *ret) MUST_CHECK;
const char *jinja_kind_name(struct jinja_value v);

bool jinja_put(struct jinja_run *r, struct jinja_text_builder *b, const char *data, size_t len,
               enum jinja_origin origin) MUST_CHECK;
bool jinja_put_text(struct jinja_run *r, struct jinja_text_builder *b,
                    const struct jinja_text *t) MUST_CHECK;
/* As Python's str. */
bool jinja_put_value(struct jinja_run *r, struct jinja_text_builder *b,
                     struct jinja_value v) MUST_CHECK;
bool jinja_built(struct jinja_run *r, const struct jinja_text_builder *b,
                 struct jinja_value *out) MUST_CHECK;
/* v itself if it is a string, else its str. */
bool jinja_str(struct jinja_run *r, struct jinja_value v, struct jinja_value *out) MUST_CHECK;
/* Python's repr of a float; out has at least 32 bytes. */
void jinja_format_real(double real, char *out, size_t size_bytes);

/* The characters that Python's str.strip removes. */
bool jinja_is_space(uint32_t character);
/* Moves *from and *to past the white space around [*from, *to), or past characters of set. */
void jinja_strip_left(const char *data, size_t *from, size_t to, const struct jinja_text *set);
void jinja_strip_right(const char *data, size_t from, size_t *to, const struct jinja_text *set);
size_t jinja_n_characters(const struct jinja_text *t);

/* jinja_json.c */
struct jinja_json_style {
    const char *indent; /* of one level; NULL: one line */
    const char *item_separator, *key_separator;
    bool is_ascii, is_sorted;
};
bool jinja_put_json(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v,
                    const struct jinja_json_style *style) MUST_CHECK;
/* Strings of the value are the caller's text. */
bool jinja_parse_json(struct jinja_run *r, const char *text, size_t len,
                      struct jinja_value *out) MUST_CHECK;

#endif
