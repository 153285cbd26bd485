/* The history of an episode, as ParlAI's models keep it: utterances, oldest first, each tokenised
 * once, when it is added. They give the text and the token vector of a model's prompt. */
#ifndef WORLDS_MESSAGE_HISTORY_H
#define WORLDS_MESSAGE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h" /* struct text */
#include "base/buf.h"
#include "base/status.h"

/* Text to token ids. Any thread. */
struct coder {
    /* Appends int32_t; on failure ids is as before. */
    enum status (*encode)(const void *self, const char *text, size_t len, struct buf *ids,
                          struct error *err);
    const void *self;
    int32_t start, end; /* of a label; -1: none */
};

struct history_config {
    struct coder coder;
    int64_t size;          /* utterances that are kept; 0 and below: all */
    struct text delimiter; /* between utterances; {NULL, 0}: a newline */
    bool split_lines;      /* each line of what is heard is an utterance */
    bool person_tokens;    /* __p1__ before heard utterances, __p2__ before the model's own */
    bool p1_after_newline; /* before the last line of what is heard, not the first */
    bool reversed;         /* the vector, newest token first */
    bool add_end;          /* coder.end behind the vector */
};

struct utterance {
    char *text;      /* [len] with its person token */
    size_t len, raw; /* raw: where the text itself begins, except if p1_after_newline cut it */
    int32_t *ids;    /* [n_ids] */
    size_t n_ids;
    bool is_own; /* the model's reply, or the label in its place */
};

struct history {
    const struct history_config *config;
    struct utterance *items; /* [n] */
    size_t n, cap;
    int32_t *delimiter; /* [n_delimiter] */
    size_t n_delimiter;
    /* Appended for this turn only. */
    char *passing; /* NULL: none */
    size_t passing_len;
};

/* Borrows config. */
void history_open(struct history *h, const struct history_config *config);
void history_close(struct history *h);
void history_clear(struct history *h);

/* Adds a heard utterance (text.text NULL: none). `passing` is for this turn only and replaces the
 * previous one (ParlAI's temp_history; NULL: none). EXHAUSTED and INVALID (not UTF-8) change
 * nothing. */
enum status history_hear(struct history *h, struct text text, struct text passing,
                         struct error *err) MUST_CHECK;
/* Adds the model's own reply. */
enum status history_say(struct history *h, struct text text, struct error *err) MUST_CHECK;

/* Appends the whole history as text, or as ids (int32_t); an empty history appends nothing. */
enum status history_text(const struct history *h, struct buf *out, struct error *err) MUST_CHECK;
enum status history_ids(const struct history *h, struct buf *out, struct error *err) MUST_CHECK;

#endif
