/* A listener is the state of one conversation of an agent that answers from a history, as ParlAI's
 * TorchAgent: the history, the vectors of the last observation, and the order of calls. The order
 * is observe, one answer, self_observe. Before the answer, further observations may follow one that
 * has no labels and does not end its episode.
 *
 * Which of several labels is chosen depends on the texts alone. The label that is scored is the one
 * that goes into the history. One thread. */
#ifndef WORLDS_PARTICIPANT_LISTENER_H
#define WORLDS_PARTICIPANT_LISTENER_H

#include "base/arena.h"
#include "worlds/message/act.h"
#include "worlds/message/history.h"

/* Which text goes into the history as the agent's own utterance. */
enum use_reply {
    USE_REPLY_LABEL, /* the gold label, or the agent's reply if the observation has no label */
    USE_REPLY_MODEL, /* the agent's reply */
    USE_REPLY_NONE,  /* no text */
};

/* Reads "label", "model" or "none". STATUS_INVALID for any other name; the error lists them. */
enum status use_reply_parse(enum use_reply *out, const char *name, struct error *err) MUST_CHECK;

enum { VECTORS_OF_SIZE = 17 }; /* 16 hex digits and a NUL */

struct dialogue_listener_config {
    struct history_config history;
    enum use_reply use_reply;
    bool hears_names;                     /* the history keeps who said what */
    size_t text_truncate, label_truncate; /* the most tokens of a vector; 0: no bound */
    /* Digest of what vectors depend on, set by listener_config_digest. "": this listener takes no
     * vectors that data_build made, and encodes each act itself. */
    char vectors_of[VECTORS_OF_SIZE];
};

/* Sets vectors_of to a digest of all that vectors depend on: the coder's vocabulary, by its
 * checksum `vocabulary`, and how c makes vectors of a text and its history. */
void listener_config_digest(struct dialogue_listener_config *c, uint32_t vocabulary);

/* listener_init makes a listener without an observation, listener_deinit frees what it holds. An
 * observation is current from listener_observe until the next one replaces it, or until
 * listener_self_observe ends its episode. listener_reset undoes all since listener_init. */
struct dialogue_listener {
    const struct dialogue_listener_config *config; /* borrowed */
    struct history history;
    struct arena arena; /* memory of the observation */
    struct act seen;    /* the observation */
    struct text label;  /* the observation's chosen label; text NULL: it has none */
    bool has_seen;      /* there is a current observation */
    bool is_reply_due;  /* the observation has a label, so an answer must precede the next one */
    bool is_padding;    /* the last observed act was padding: its answer is not kept */
    bool is_end;        /* the observation ended its episode */
    bool is_answered;   /* self_observe has had the answer to the observation */
    bool is_kept;       /* the episode's acts brought their vectors: the history stays empty */
};

/* Borrows config until listener_deinit. */
void listener_init(struct dialogue_listener *l, const struct dialogue_listener_config *config);
void listener_deinit(struct dialogue_listener *l);
void listener_reset(struct dialogue_listener *l);

/* Adds the heard act to the history and returns it in *out with these fields more: text_vec (the
 * newest text_truncate token ids of the history), full_text and full_text_vec; with labels also
 * labels_choice and labels_vec, the chosen label and its token ids (eval_labels_choice and
 * eval_labels_vec of evaluation data); and how long both were before they were cut
 * (context_original_length, context_truncate_rate, context_truncated_length, and the same with
 * label_). A text_vec or label vector that the act already has is kept and cut. An act with the
 * field vectors_of was observed before, by data_build: the listener takes its vectors as they are
 * and encodes nothing. *out is valid until the next observe or reset.
 *
 * Padding ends the conversation: the listener is reset, and *out is the padding itself.
 *
 * PRECONDITION if the observation before still needs an answer; if the act's vectors_of differs
 * from the config's (a listener with "" ignores the field); if such vectors hold labels that are
 * hidden here; or if an act of a preprocessed episode has no vectors. INVALID for an empty list of
 * labels. These leave the listener unchanged. Other failures are EXHAUSTED and those of the coder
 * (a text that is not UTF-8); the listener may then have been reset. */
enum status listener_observe(struct dialogue_listener *l, const struct act *heard,
                             const struct act **out, struct error *err) MUST_CHECK;
/* Checks that there is an observation to answer; else PRECONDITION. */
enum status listener_answer(const struct dialogue_listener *l, struct error *err) MUST_CHECK;
/* Takes the agent's own reply: adds it, or the label, to the history, as use_reply says; if the
 * observation ended its episode, empties the history instead. Does nothing after padding.
 * PRECONDITION if there is no observation, or if it has its answer already. INVALID if the
 * observation has no episode_done, or if the reply is to be used and has no text. */
enum status listener_self_observe(struct dialogue_listener *l, const struct act *reply,
                                  struct error *err) MUST_CHECK;

#endif
