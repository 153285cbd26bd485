/* An act: what one participant of a world says to the others (ParlAI's Message). It has ordered
 * fields with typed values; setting a field that exists is an error, so that no writer overwrites
 * another's by accident.
 *
 * An act is small, passed by value or pointer, and points to its fields. A teacher's act points
 * into the teacher's data, without a copy; the first change copies the fields (not their values)
 * into the act's arena. Values are always borrowed: a text, list or vector that is set must
 * outlive the act, e.g. in the same arena. Any thread may use an act, one thread at a time; several
 * threads may read acts that share borrowed fields. */
#ifndef WORLDS_MESSAGE_ACT_H
#define WORLDS_MESSAGE_ACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h" /* struct text */
#include "base/arena.h"
#include "base/json_writer.h"
#include "base/status.h"

struct metric_list;

/* The standard fields. Every other field has the key ACT_OTHER and is found by its name. */
enum act_key {
    ACT_OTHER,            /* a field of any other name */
    ACT_ID,               /* text: the speaker's name */
    ACT_TEXT,             /* text: what the speaker says */
    ACT_LABELS,           /* list: right answers, in training data */
    ACT_EVAL_LABELS,      /* list: right answers, in evaluation data */
    ACT_LABEL_CANDIDATES, /* list: answers to choose from */
    ACT_TEXT_CANDIDATES,  /* list: a model's ranked answers, the best first */
    ACT_EPISODE_DONE,     /* bool: the act is the last of its episode */
    ACT_REWARD,           /* number: a reward */
    ACT_IMAGE,            /* any value; only passed on */
    ACT_METRICS,          /* metrics that the model computed for this reply */
    ACT_BATCH_PADDING,    /* bool: the act fills a batch and is no participant's */
    ACT_TEXT_VEC,         /* token ids of the text and its history */
    ACT_LABELS_VEC,       /* token ids of the chosen label, in training data */
    ACT_EVAL_LABELS_VEC,  /* token ids of the chosen label, in evaluation data */
    ACT_N_KEYS,
};

enum value_type {
    VALUE_NULL,
    VALUE_TEXT,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_REAL,
    VALUE_LIST,    /* a list of texts */
    VALUE_IDS,     /* a list of token ids */
    VALUE_JSON,    /* any other value, as its JSON text */
    VALUE_METRICS, /* metrics; JSON and text lines leave them out */
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
    const struct field *fields; /* [n], in order; in arena while cap > 0, else borrowed */
    uint32_t n, cap;            /* fields that the act has; fields that the array has room for */
    uint32_t present;           /* bit k is set if the act has the standard field of key k */
    struct arena *arena;        /* where changed fields go; borrowed. NULL: no change is possible */
};

/* Makes an act without fields. Borrows arena (may be NULL). */
void act_init(struct act *a, struct arena *arena);
/* Makes an act with the fields of from, which are borrowed until a is changed. O(1). */
void act_share(struct act *a, const struct act *from, struct arena *arena);
/* Copies the fields of from with their texts, lists and ids into arena, so that the memory of from
 * may be freed afterwards. Metrics stay borrowed. EXHAUSTED without memory; a is then unchanged. */
enum status act_copy(struct act *a, const struct act *from, struct arena *arena,
                     struct error *err) MUST_CHECK;

/* Return a field's value, NULL if the act does not have the field. The value is valid until the act
 * is changed. */
const struct value *act_get(const struct act *a, enum act_key key); /* key: not ACT_OTHER */
const struct value *act_get_named(const struct act *a, const char *name, size_t len);
static inline bool act_has(const struct act *a, enum act_key key)
{
    return (a->present >> key & 1) != 0;
}

/* Add a field behind all others. STATUS_EXISTS if the act has the field already, whatever its
 * value; STATUS_EXHAUSTED without memory or without an arena. A failure leaves the act unchanged.
 */
enum status act_set(struct act *a, enum act_key key, struct value v, struct error *err) MUST_CHECK;
enum status act_set_named(struct act *a, struct text name, struct value v,
                          struct error *err) MUST_CHECK;
/* Set a field: a field that exists is overwritten in its place, a new one is added behind all
 * others. STATUS_EXHAUSTED as for act_set. */
enum status act_force(struct act *a, enum act_key key, struct value v,
                      struct error *err) MUST_CHECK;
enum status act_force_named(struct act *a, struct text name, struct value v,
                            struct error *err) MUST_CHECK;
/* Removes a field. *ret_was_there (may be NULL) says whether the act had it; a missing field is no
 * error. STATUS_EXHAUSTED as for act_set. */
enum status act_remove(struct act *a, const char *name, size_t len, bool *ret_was_there,
                       struct error *err) MUST_CHECK;

/* Shortcuts for the common fields. */
struct text act_text(const struct act *a);    /* {NULL, 0} if the text is missing or not a text */
struct text act_speaker(const struct act *a); /* its id; {NULL, 0} if it is missing or not a text */
/* Writes the text behind the name of who said it, "Ann: Hello", for those who get texts alone; the
 * text itself if it has no name or is empty. A new text lies in arena. */
enum status act_named_text(struct text *out, const struct act *a, struct arena *arena,
                           struct error *err) MUST_CHECK;
/* Returns how many words, with white space between them, a text has. */
uint32_t act_count_words(struct text t);
/* Returns labels, or eval_labels if there is no field labels; NULL if that field is missing or not
 * a list. */
const struct value *act_labels(const struct act *a);
const struct value *act_list(const struct act *a, enum act_key key); /* NULL if it is not a list */
/* Returns whether the act has the field and Python would call its value true. A VALUE_JSON always
 * counts as true. */
bool act_is(const struct act *a, enum act_key key);
static inline bool act_is_padding(const struct act *a)
{
    return act_has(a, ACT_BATCH_PADDING) && act_is(a, ACT_BATCH_PADDING);
}
/* Makes the act {batch_padding: true, episode_done: true}, whose fields are constants. Borrows
 * arena for later changes. */
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

/* act_key_of returns the key of a standard field's name, ACT_OTHER for any other name.
 * act_key_name returns the name of a key, "" for ACT_OTHER. */
enum act_key act_key_of(const char *name, size_t len);
struct text act_key_name(enum act_key key);

/* Appends the act as one JSON object on one line, without a newline and without the act's metrics.
 * NaN and infinities become the strings "NaN", "Infinity" and "-Infinity". EXHAUSTED without
 * memory; nothing is appended then. */
enum status act_to_json(const struct act *a, struct buf *out, struct error *err) MUST_CHECK;
/* Writes the same object as an entry of the writer's array. */
void act_write_json(const struct act *a, struct json_writer *w);
/* Reads one JSON object (RFC 8259, and Python's NaN, Infinity and -Infinity) into *a. Texts without
 * an escape are borrowed from json, which must live as long as the act; everything else lies in
 * arena. Integers stay integers; any value but a scalar, a list of strings, or a list of 32-bit
 * integers in a *_vec field is kept as JSON. The user of a standard field must check that its value
 * has the field's type. STATUS_INVALID says what is wrong at which byte: the text is not JSON, not
 * an object or not UTF-8, a key occurs twice, a number is out of range, or values are nested deeper
 * than 64. EXHAUSTED without memory. A failure leaves *a unchanged. */
enum status act_from_json(struct act *a, const char *json, size_t len, struct arena *arena,
                          struct error *err) MUST_CHECK;

#endif
