/* A datatype says which data a teacher deals, and in what order. Its text has ParlAI's grammar
 * fold[:mod…]: the fold is train, valid or test; a mod is stream, ordered or evalmode.
 *
 * Data of the fold train without evalmode are training data: their acts have `labels`, and the data
 * begin again when an epoch is over. All other data are evaluation data: their acts have
 * `eval_labels`, and padding follows the last episode. Episodes come in the order of the data, but
 * plain `train` draws them at random, with replacement, so its epoch never ends. */
#ifndef WORLDS_MESSAGE_DATATYPE_H
#define WORLDS_MESSAGE_DATATYPE_H

#include <stdbool.h>

#include "base/status.h"

enum fold { FOLD_TRAIN, FOLD_VALID, FOLD_TEST };

struct datatype {
    enum fold fold;
    bool stream;   /* the data are read from a built data file, in bounded memory */
    bool ordered;  /* the mod `ordered` was given */
    bool evalmode; /* training data are used for evaluation */
};

/* Reads a datatype's text. STATUS_INVALID if it does not follow the grammar; the error's text says
 * what is allowed. */
enum status datatype_parse(struct datatype *out, const char *text, struct error *err) MUST_CHECK;

static inline bool datatype_is_training(const struct datatype *d)
{
    return d->fold == FOLD_TRAIN && !d->evalmode;
}

/* True if episodes are drawn at random, with replacement, without end. */
static inline bool datatype_shuffles(const struct datatype *d)
{
    return datatype_is_training(d) && !d->ordered && !d->stream;
}

/* True if the data begin again after the last episode; else padding follows it. */
static inline bool datatype_loops(const struct datatype *d)
{
    return datatype_is_training(d);
}

#endif
