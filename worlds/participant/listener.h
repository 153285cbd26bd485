/* The state of one conversation of an agent that answers from a history, as ParlAI's TorchAgent:
 * the history, the vectors of the last observation, and the order of calls: observe, one answer,
 * self_observe. More observations may follow one that has no labels and does not end its episode,
 * before the answer.
 *
 * The choice of one of several labels depends on the texts alone; the label that is scored is
 * the one that goes into the history. */
#ifndef WORLDS_PARTICIPANT_LISTENER_H
#define WORLDS_PARTICIPANT_LISTENER_H

#include "base/arena.h"
#include "worlds/message/act.h"
#include "worlds/message/history.h"

/* Which text goes into the history as the agent's own utterance. */
enum use_reply {
    USE_REPLY_LABEL, /* the gold label; the reply where there is none */
    USE_REPLY_MODEL,
    USE_REPLY_NONE,
};

/* STATUS_INVALID lists the three names. */
enum status use_reply_parse(enum use_reply *out, const char *name, struct error *err) MUST_CHECK;

enum { VECTORS_OF_SIZE = 17 }; /* 16 hex digits and a NUL */

struct dialogue_listener_config {
    struct history_config history;
    enum use_reply use_reply;
    size_t text_truncate, label_truncate; /* tokens; 0: no bound */
    /* Of the vectors that it makes, by listener_config_digest; "": of none that are kept. */
    char vectors_of[VECTORS_OF_SIZE];
};

/* Sets vectors_of, which says what vectors depend on: the coder's vocabulary (vocabulary: a
 * checksum of it) and how this config makes vectors of a text and its history. */
void listener_config_digest(struct dialogue_listener_config *c, uint32_t vocabulary);

struct dialogue_listener {
    const struct dialogue_listener_config *config;
    struct history history;
    struct arena arena; /* the observation's */
    struct act seen;    /* the observation */
    struct text label;  /* chosen; text NULL: there is none */
    bool has_seen;      /* there is an observation that is not yet answered and self-observed */
    bool is_reply_due;  /* it had a label */
    bool is_padding;    /* the last one was padding: no answer is kept */
    bool is_end;        /* it ended its episode */
    bool is_answered;   /* self_observe was called */
    bool is_kept;       /* the episode's vectors came with its acts: there is no history */
};

/* Borrows config. */
void listener_init(struct dialogue_listener *l, const struct dialogue_listener_config *config);
void listener_deinit(struct dialogue_listener *l);
void listener_reset(struct dialogue_listener *l);

/* Returns the heard act with its vectors: text_vec (the history's newest text_truncate ids),
 * labels_vec or eval_labels_vec with the label chosen as labels_choice or eval_labels_choice,
 * full_text, and how long text and label were before they were cut (context_original_length,
 * context_truncate_rate, context_truncated_length, the same with label_). A text_vec or label
 * vector that the act already has is kept and cut. An act with vectors_of was observed before, by
 * data_build: its vectors are taken as they are, and nothing is encoded. Valid until the next
 * observe or reset; padding is returned unchanged. PRECONDITION: the observation before has no
 * answer yet. INVALID: an empty list of labels, text that is not UTF-8. PRECONDITION, too:
 * vectors_of is of other vectors than this listener makes (one that makes none ignores them), or
 * they hold labels that are hidden here. Then nothing has changed. */
enum status listener_observe(struct dialogue_listener *l, const struct act *heard,
                             const struct act **out, struct error *err) MUST_CHECK;
/* PRECONDITION: there is no observation to answer. */
enum status listener_answer(const struct dialogue_listener *l, struct error *err) MUST_CHECK;
/* PRECONDITION without an observation, or when it has its answer. INVALID: the observation does not
 * say whether its episode is done, or the reply that is to be used has no text. */
enum status listener_self_observe(struct dialogue_listener *l, const struct act *reply,
                                  struct error *err) MUST_CHECK;

#endif
