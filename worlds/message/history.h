/* The history of an episode, as ParlAI's models keep it (torch_agent.py, class History): the
 * utterances of both sides, the oldest first. The text and the token vector of a model's prompt are
 * made of them. Each utterance is tokenised once, when it is added. One thread. */
#ifndef WORLDS_MESSAGE_HISTORY_H
#define WORLDS_MESSAGE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/message.h" /* struct text */
#include "base/buf.h"
#include "base/status.h"

/* Turns a text into token ids. Any thread. */
struct coder {
    /* Appends the text's token ids (int32_t) to ids. A failure leaves ids unchanged. */
    enum status (*encode)(const void *self, const char *text, size_t len, struct buf *ids,
                          struct error *err);
    const void *self;
    int32_t start, end; /* token ids that enclose a label; -1: no token */
};

struct history_config {
    struct coder coder;
    int64_t size;          /* utterances that are kept, the newest ones; 0 and below: all */
    struct text delimiter; /* text between two utterances; {NULL, 0}: a newline */
    bool split_lines;      /* each line of a heard text is an utterance */
    bool person_tokens;    /* __p1__ precedes heard utterances, __p2__ the model's own */
    bool p1_after_newline; /* __p1__ stands before the last line of a heard text, not the first */
    bool reversed;         /* the token vector begins with the newest token */
    bool add_end;          /* coder.end is appended to the token vector */
};

struct utterance {
    char *text;      /* [len] with its person token */
    size_t len, raw; /* raw: offset of the text behind its person token; 0 if p1_after_newline put
                        the token inside the text */
    int32_t *ids;    /* [n_ids] token ids of the text */
    size_t n_ids;
    bool is_own;   /* the model's reply, or the label in its place */
    char *speaker; /* the name of who said it; NULL: it was said without one */
};

/* history_open makes an empty history, history_close frees it. In between it grows by history_hear
 * and history_say, and history_clear empties it for the next episode. */
struct history {
    const struct history_config *config; /* borrowed */
    struct utterance *items;             /* [n], the oldest first */
    size_t n, cap;
    int32_t *delimiter; /* [n_delimiter] token ids, encoded with the first utterance */
    size_t n_delimiter;
    char
        *passing; /* [passing_len] text behind the last utterance, for this turn only; NULL: none */
    size_t passing_len;
};

/* Makes an empty history. Borrows config until history_close. */
void history_open(struct history *h, const struct history_config *config);
void history_close(struct history *h);
void history_clear(struct history *h);

/* Adds a text that the model hears as an utterance (text.text NULL: no utterance is added). passing
 * is a text for this turn only, ParlAI's temp_history; it replaces the one of the turn before
 * (passing.text NULL: none). speaker is the name of who said it; .text NULL: none. Failures are
 * EXHAUSTED and those of the coder; they leave the history unchanged. */
enum status history_hear(struct history *h, struct text text, struct text speaker,
                         struct text passing, struct error *err) MUST_CHECK;
/* Adds the model's own reply as an utterance. Fails as history_hear does. */
enum status history_say(struct history *h, struct text text, struct error *err) MUST_CHECK;

/* Append the whole history as text, or as token ids (int32_t). An empty history appends nothing.
 * After a failure a part may have been appended. */
enum status history_text(const struct history *h, struct buf *out, struct error *err) MUST_CHECK;
enum status history_ids(const struct history *h, struct buf *out, struct error *err) MUST_CHECK;

#endif
