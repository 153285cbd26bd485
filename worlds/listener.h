/* What an agent that answers from a history keeps of one conversation, as ParlAI's TorchAgent does:
 * the history, the vectors of the last observation, and the order of calls, which is observe, then
 * one answer, then self_observe. An observation without labels that does not end its episode may be
 * followed by others before the answer.
 *
 * Where a label is to be chosen of several, the choice depends on the texts alone, and the one that
 * is scored is the one that goes into the history. */
#ifndef WORLDS_LISTENER_H
#define WORLDS_LISTENER_H

#include "base/arena.h"
#include "worlds/act.h"
#include "worlds/history.h"

/* Which of them goes into the history as the agent's own words. */
enum use_reply {
    USE_REPLY_LABEL, /* the gold label; the reply where there is none */
    USE_REPLY_MODEL,
    USE_REPLY_NONE,
};

/* STATUS_INVALID names the three. */
enum status use_reply_parse(enum use_reply *out, const char *name, struct error *err) MUST_CHECK;

struct listener_config {
    struct history_config history;
    enum use_reply use_reply;
    size_t text_truncate, label_truncate; /* tokens; 0: no bound */
};

struct listener {
    const struct listener_config *config;
    struct history history;
    struct arena arena; /* the observation's */
    struct act seen;    /* the observation */
    struct text label;  /* chosen; text NULL: there is none */
    bool has_seen;      /* there is an observation, not yet answered and done with */
    bool is_reply_due;  /* it had a label */
    bool is_padding;    /* the last one was padding: no answer is kept */
    bool is_end;        /* it ended its episode */
    bool is_answered;   /* self_observe was there */
};

/* Borrows config. */
void listener_init(struct listener *l, const struct listener_config *config);
void listener_deinit(struct listener *l);
void listener_reset(struct listener *l);

/* What was heard, with its vectors: text_vec (the history's newest text_truncate ids),
 * labels_vec or eval_labels_vec with the label chosen as labels_choice or eval_labels_choice,
 * full_text, and how long text and label were before they were cut (context_original_length,
 * context_truncate_rate, context_truncated_length, the same with label_). A text_vec or label
 * vector that came along is kept and cut. Valid until the next observe or reset; padding is given
 * back as it is. PRECONDITION: the answer to the one before is missing. INVALID: an empty list of
 * labels, text that is not UTF-8. Then nothing has changed. */
enum status listener_observe(struct listener *l, const struct act *heard, const struct act **out,
                             struct error *err) MUST_CHECK;
/* Whether there is an observation to be answered: PRECONDITION if not. */
enum status listener_answer(const struct listener *l, struct error *err) MUST_CHECK;
/* PRECONDITION without an observation, or when it has its answer. INVALID: the observation does not
 * say whether its episode is done, or the reply that is to be used has no text. */
enum status listener_self_observe(struct listener *l, const struct act *reply,
                                  struct error *err) MUST_CHECK;

#endif
