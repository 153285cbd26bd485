/* What was said so far in an episode, as ParlAI's models keep it: utterances, the newest last, each
 * cut into tokens once, when it comes. Of them come the one text and the one vector that a model is
 * asked with. */
#ifndef WORLDS_HISTORY_H
#define WORLDS_HISTORY_H

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
    bool person_tokens;    /* __p1__ before what is heard, __p2__ before what was said */
    bool p1_after_newline; /* before the last line of what is heard, not the first */
    bool reversed;         /* the vector, newest token first */
    bool add_end;          /* coder.end behind the vector */
};

struct utterance {
    char *text;      /* [len] with its person token */
    size_t len, raw; /* raw: where the text itself begins, but for one that p1_after_newline cut */
    int32_t *ids;    /* [n_ids] */
    size_t n_ids;
    bool is_own; /* the model's, or the label in its place */
};

struct history {
    const struct history_config *config;
    struct utterance *items; /* [n] */
    size_t n, cap;
    int32_t *delimiter; /* [n_delimiter] */
    size_t n_delimiter;
    /* Behind the newest, of this turn alone. */
    char *passing; /* NULL: none */
    size_t passing_len;
};

/* Borrows config. */
void history_open(struct history *h, const struct history_config *config);
void history_close(struct history *h);
void history_clear(struct history *h);

/* Something was heard; text.text NULL: nothing but passing (ParlAI's temp_history; NULL: none),
 * which takes the place of the one before. EXHAUSTED and INVALID (not UTF-8) leave all as it was.
 */
enum status history_hear(struct history *h, struct text text, struct text passing,
                         struct error *err) MUST_CHECK;
/* Something was said in reply. */
enum status history_say(struct history *h, struct text text, struct error *err) MUST_CHECK;

/* Appends the whole as text, or as ids (int32_t). Nothing was said: appends nothing. */
enum status history_text(const struct history *h, struct buf *out, struct error *err) MUST_CHECK;
enum status history_ids(const struct history *h, struct buf *out, struct error *err) MUST_CHECK;

#endif
