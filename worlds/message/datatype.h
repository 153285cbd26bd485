/* Which data, and in what order: ParlAI's grammar fold[:mod…], with fold train, valid or test, and
 * mods stream, ordered, evalmode.
 *
 * training: train and not evalmode; labels are `labels`, else `eval_labels`.
 * ordered: each episode in turn. Episodes of plain `train` are drawn at random, with replacement,
 * and an epoch never ends; all others end. */
#ifndef WORLDS_MESSAGE_DATATYPE_H
#define WORLDS_MESSAGE_DATATYPE_H

#include <stdbool.h>

#include "base/status.h"

enum fold { FOLD_TRAIN, FOLD_VALID, FOLD_TEST };

struct datatype {
    enum fold fold;
    bool stream;   /* from a built data file, in bounded memory */
    bool ordered;  /* the mod `ordered` was given */
    bool evalmode; /* evaluation on training data */
};

/* STATUS_INVALID: the text says what is allowed. */
enum status datatype_parse(struct datatype *out, const char *text, struct error *err) MUST_CHECK;

static inline bool datatype_is_training(const struct datatype *d)
{
    return d->fold == FOLD_TRAIN && !d->evalmode;
}

/* Episodes are drawn at random, with replacement, without end. */
static inline bool datatype_shuffles(const struct datatype *d)
{
    return datatype_is_training(d) && !d->ordered && !d->stream;
}

/* The data repeat after the last episode; else padding follows. */
static inline bool datatype_loops(const struct datatype *d)
{
    return datatype_is_training(d);
}

#endif
