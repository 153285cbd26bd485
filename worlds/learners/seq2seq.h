/* The LSTM pair (agents/seq2seq/) as a participant of worlds. It answers in batches: the rows with
 * `labels` make one step of learning together; all other rows are scored by their eval_labels and
 * get a reply. The metrics are those of a language model: loss, ppl, token_acc, token_em. Batches
 * by length are formed as ParlAI's, by rows times the longest within the budget, though no padding
 * is computed. */
#ifndef WORLDS_LEARNERS_SEQ2SEQ_H
#define WORLDS_LEARNERS_SEQ2SEQ_H

#include "agents/seq2seq/seq2seq.h"
#include "worlds/participant/listener.h"
#include "worlds/participant/participant.h"

struct seq2seq_participant_config {
    struct dialogue_listener_config listener; /* seq2seq_participant_open fills in the coder;
                                                 truncations of 0, or above SEQ2SEQ_MAX_WORDS,
                                                 become SEQ2SEQ_MAX_WORDS */
    bool learns;             /* rows with `labels` are learned from; else they are only scored */
    float rate;              /* learning rate of Adam, above 0 */
    bool no_score, no_reply; /* rows are not scored; no replies are generated */
    size_t max_words;        /* the most words of a reply, at least 1 */
    const char *opening;     /* reply of a clone that has observed nothing; NULL: its row fails */
};

/* Sets the defaults: rate 0.003, replies of at most 128 words; it does not learn. */
void seq2seq_participant_config_init(struct seq2seq_participant_config *c);

/* Takes s, also on failure. STATUS_INVALID names the number that is out of bounds. In a world of
 * several threads one batch at a time uses the model, since a pass uses the backend's threads; the
 * others prepare theirs. */
enum status seq2seq_participant_open(struct participant **out, struct seq2seq *s,
                                     const struct seq2seq_participant_config *config,
                                     struct error *err) MUST_CHECK;
/* Returns the model; borrowed. p was made by seq2seq_participant_open. */
struct seq2seq *seq2seq_participant_model(const struct participant *p);
/* While paused, the participant observes acts with `labels` but does not learn from them, and its
 * replies to them have neither text nor metrics. Call it between two parleys. */
void seq2seq_participant_pause(struct participant *p, bool is_paused);

#endif
