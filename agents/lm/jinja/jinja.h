/* Jinja2 as chat templates are rendered by it: trim_blocks, lstrip_blocks, loop controls, the
 * functions raise_exception and strftime_now, tojson without HTML escapes. A template is compiled
 * once and rendered often, within bounds of steps and memory. Inheritance and includes are not
 * supported.
 *
 * A string knows for each of its bytes who wrote it: the template or the caller. All memory of a
 * render is its arena's, and nothing is freed before the render ends. A function that returns bool
 * returns false on failure, and the run's error says why. A template may be used by several threads
 * at once, a run by one. */
#ifndef AGENTS_LM_JINJA_JINJA_H
#define AGENTS_LM_JINJA_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/arena.h"
#include "base/status.h"

struct jinja;

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
struct jinja_method;

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

enum { JINJA_MAX_SOURCE_BYTES = 1 << 20 };

/* INVALID, with its line, if the template is not correct. */
enum status jinja_open(struct jinja **out, const char *text, size_t len,
                       struct error *err) MUST_CHECK;
void jinja_close(struct jinja *t); /* NULL is fine */

/* Begins a render with memory from arena, whose limit bounds it. Borrows all until the render ends;
 * now is the local time that strftime_now shows. Failures set *err. */
bool jinja_begin(struct jinja_run *out, const struct jinja *t, struct arena *arena,
                 const struct tm *now, uint64_t max_steps, struct error *err) MUST_CHECK;
/* A variable of the template; one that it does not use is left out. */
void jinja_set(struct jinja_run *r, const char *name, struct jinja_value value);
bool jinja_uses(const struct jinja *t, const char *name);
/* *out is valid as long as the arena. INVALID: the template raised an exception, cannot go on, or
 * passed a bound. */
enum status jinja_render(struct jinja_run *r, struct jinja_text *out) MUST_CHECK;

/* The values of variables. */
struct jinja_value jinja_bool(bool flag);
struct jinja_value jinja_none(void);
/* Borrows data until the render ends. */
bool jinja_string(struct jinja_run *r, const char *data, size_t len, enum jinja_origin origin,
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
/* Strings of the value are the caller's text. */
bool jinja_parse_json(struct jinja_run *r, const char *text, size_t len,
                      struct jinja_value *out) MUST_CHECK;

#endif
