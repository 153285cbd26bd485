/* The LSTM pair (agents/seq2seq/) as a participant of worlds. It answers in batches: rows with
 * `labels` are one step of learning together, others are scored (eval_labels) and get a reply. Its
 * metrics are a language model's: loss, ppl, token_acc, token_em. Batches by length are ParlAI's,
 * rows times the longest within the budget, though no padding is computed. */
#ifndef WORLDS_LEARNERS_SEQ2SEQ_H
#define WORLDS_LEARNERS_SEQ2SEQ_H

#include "agents/seq2seq/seq2seq.h"
#include "worlds/participant/listener.h"
#include "worlds/participant/participant.h"

struct seq2seq_participant_config {
    struct dialogue_listener_config listener; /* its coder is filled in here; truncations of 0, or
                                                 above SEQ2SEQ_MAX_WORDS, are that */
    bool learns;                              /* false: labels are for scores alone */
    float rate;                               /* of Adam, above 0 */
    bool no_score, no_reply;
    size_t max_words;    /* of a reply, from 1 on */
    const char *opening; /* reply of a clone without an observation; NULL: an error */
};

/* Rate 0.003, replies of at most 128 words. */
void seq2seq_participant_config_init(struct seq2seq_participant_config *c);

/* Takes s, also on failure. Worlds of several threads are UNIMPLEMENTED: a pass uses the backend's
 * threads. STATUS_INVALID names the number that is out of bounds. */
enum status seq2seq_participant_open(struct participant **out, struct seq2seq *s,
                                     const struct seq2seq_participant_config *config,
                                     struct error *err) MUST_CHECK;
struct seq2seq *seq2seq_participant_model(const struct participant *p);
/* Hears what has labels, and learns nothing from it; between two parleys. */
void seq2seq_participant_pause(struct participant *p, bool is_paused);

#endif
