/* An act: what one participant of a world says to the others (ParlAI's Message). It has ordered
 * fields with typed values; setting a field that exists is an error, so that no writer overwrites
 * another's by accident.
 *
 * An act is small, passed by value or pointer, and points to its fields. A teacher's act points
 * into the teacher's data, without a copy; the first change copies the fields (not their values)
 * into the act's arena. Values are always borrowed: a text, list or vector that is set must
 * outlive the act, e.g. in the same arena. Any thread, one at a time; several threads may read
 * acts that share borrowed fields. */
#ifndef WORLDS_MESSAGE_ACT_H
#define WORLDS_MESSAGE_ACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h" /* struct text */
#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

struct metric_list;

/* The standard fields; every other field is found by its name. */
enum act_key {
    ACT_OTHER, /* any other name */
    ACT_ID,    /* text: the speaker */
    ACT_TEXT,
    ACT_LABELS,           /* list: right answers, of training data */
    ACT_EVAL_LABELS,      /* list: right answers, of evaluation data */
    ACT_LABEL_CANDIDATES, /* list: answers to choose from */
    ACT_TEXT_CANDIDATES,  /* list: a model's, the best first */
    ACT_EPISODE_DONE,     /* bool */
    ACT_REWARD,           /* number */
    ACT_IMAGE,
    ACT_METRICS,       /* metrics that the model computed */
    ACT_BATCH_PADDING, /* bool: padding of a batch, not a participant's act */
    ACT_TEXT_VEC,      /* ids */
    ACT_LABELS_VEC,
    ACT_EVAL_LABELS_VEC,
    ACT_N_KEYS,
};

enum value_type {
    VALUE_NULL,
    VALUE_TEXT,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_REAL,
    VALUE_LIST,    /* of texts */
    VALUE_IDS,     /* token ids */
    VALUE_JSON,    /* anything else, as the text of its JSON */
    VALUE_METRICS, /* left out of JSON and text lines */
};

struct value {
    uint8_t type; /* enum value_type */
    union {
        struct text text; /* UTF-8; VALUE_TEXT and VALUE_JSON */
        bool boolean;
        int64_t integer;
        double real;
        struct {
            const struct text *items; /* [n] */
            size_t n;
        } list;
        struct {
            const int32_t *items; /* [n] */
            size_t n;
        } ids;
        const struct metric_list *metrics; /* worlds/metrics/metrics.h */
    };
};

struct field {
    struct text name;
    uint8_t key; /* enum act_key */
    struct value value;
};

struct act {
    const struct field *fields; /* [n], in order; the arena's while cap > 0, else borrowed */
    uint32_t n, cap;
    uint32_t present;    /* bit key: a standard field that the act has */
    struct arena *arena; /* of what is set; NULL: it cannot be changed */
};

/* No fields. Borrows arena. */
void act_init(struct act *a, struct arena *arena);
/* As from: borrows its fields until a is changed. O(1). */
void act_share(struct act *a, const struct act *from, struct arena *arena);
/* Copies texts, lists and ids too, so that from's memory may go (metrics stay borrowed). */
enum status act_copy(struct act *a, const struct act *from, struct arena *arena,
                     struct error *err) MUST_CHECK;

/* NULL for a missing field. Valid until the act is changed. */
const struct value *act_get(const struct act *a, enum act_key key); /* not ACT_OTHER */
const struct value *act_get_named(const struct act *a, const char *name, size_t len);
static inline bool act_has(const struct act *a, enum act_key key)
{
    return (a->present >> key & 1) != 0;
}

/* STATUS_EXISTS when the act has the field, whatever its value; STATUS_EXHAUSTED without memory or
 * without an arena. Then nothing has changed. */
enum status act_set(struct act *a, enum act_key key, struct value v, struct error *err) MUST_CHECK;
enum status act_set_named(struct act *a, struct text name, struct value v,
                          struct error *err) MUST_CHECK;
/* Overwrites: the field keeps its place. A new one goes to the end. */
enum status act_force(struct act *a, enum act_key key, struct value v,
                      struct error *err) MUST_CHECK;
enum status act_force_named(struct act *a, struct text name, struct value v,
                            struct error *err) MUST_CHECK;
/* Removes a field; *ret_was_there: the act had it. Fails as act_force does. */
enum status act_remove(struct act *a, const char *name, size_t len, bool *ret_was_there,
                       struct error *err) MUST_CHECK;

/* Shortcuts for the common fields. */
struct text act_text(const struct act *a); /* {NULL, 0} when it is missing or not a text */
/* labels, else eval_labels; NULL when both are missing or not a list. */
const struct value *act_labels(const struct act *a);
const struct value *act_list(const struct act *a, enum act_key key); /* NULL unless a list */
/* Whether the act has the field and Python would call its value true. */
bool act_is(const struct act *a, enum act_key key);
static inline bool act_is_padding(const struct act *a)
{
    return act_has(a, ACT_BATCH_PADDING) && act_is(a, ACT_BATCH_PADDING);
}
/* {batch_padding: true, episode_done: true}; const, borrows nothing. */
void act_padding(struct act *a, struct arena *arena);

static inline struct value value_text(struct text t)
{
    return (struct value){.type = VALUE_TEXT, .text = t};
}
static inline struct value value_bool(bool b)
{
    return (struct value){.type = VALUE_BOOL, .boolean = b};
}
static inline struct value value_int(int64_t i)
{
    return (struct value){.type = VALUE_INT, .integer = i};
}
static inline struct value value_real(double x)
{
    return (struct value){.type = VALUE_REAL, .real = x};
}
static inline struct value value_list(const struct text *items, size_t n)
{
    return (struct value){.type = VALUE_LIST, .list = {items, n}};
}
static inline struct value value_ids(const int32_t *items, size_t n)
{
    return (struct value){.type = VALUE_IDS, .ids = {items, n}};
}
static inline struct value value_metrics(const struct metric_list *m)
{
    return (struct value){.type = VALUE_METRICS, .metrics = m};
}

/* The key of a standard field's name, ACT_OTHER of any other; and back (ACT_OTHER: ""). */
enum act_key act_key_of(const char *name, size_t len);
struct text act_key_name(enum act_key key);

/* Appends the act as one JSON object on one line (no newline), without its metrics. */
enum status act_to_json(const struct act *a, struct buf *out, struct error *err) MUST_CHECK;
/* One JSON object (RFC 8259). Texts without an escape are borrowed from json, which must live as
 * long as the act; all else is in the arena. Integers stay integers; any value but a scalar, a list
 * of strings, or a list of 32-bit integers in a *_vec field is kept as JSON. The user of a standard
 * field must check that its value has the field's type. STATUS_INVALID says what is wrong at which
 * byte: not JSON, not an object, a key twice, not UTF-8, a number out of range, nested deeper than
 * 64. */
enum status act_from_json(struct act *a, const char *json, size_t len, struct arena *arena,
                          struct error *err) MUST_CHECK;

#endif
