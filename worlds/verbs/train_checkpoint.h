/* The text in a checkpoint of `parley train` that says where the training is, and the options that
 * what follows depends on: another process with the same ones makes the same bits of it. */
#ifndef WORLDS_VERBS_TRAIN_CHECKPOINT_H
#define WORLDS_VERBS_TRAIN_CHECKPOINT_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"
#include "cli/options/options.h"
#include "worlds/verbs/train_loop.h"

/* All options of the groups by name, but those that change nothing in what is learned. The caller
 * calls json_decref. */
json_t *train_checkpoint_options(const struct option_group *groups, size_t n_groups);

/* The text of any training: `state`, an object, which it takes, and the options. The caller calls
 * free. */
char *train_checkpoint_join(json_t *state, const json_t *options);
/* Reads it back from the file at path; the caller calls json_decref. NOT_FOUND: there is none.
 * PRECONDITION names the option that was another one; DATA_LOSS: the file is damaged. */
enum status train_checkpoint_load(json_t **out, const char *path, const json_t *options,
                                  struct error *err) MUST_CHECK;
/* DATA_LOSS: what it says is not sensible. */
enum status train_checkpoint_damaged(const char *path, struct error *err);
/* Adds to the text of DATA_LOSS what to do about it. Returns err->status. */
enum status train_checkpoint_advise(struct error *err);

/* Of a train_loop: the text; the caller calls free. n_epoch: the examples of an epoch. */
char *train_checkpoint_text(const struct train_progress *at, size_t n_epoch, const json_t *options);

/* As train_checkpoint_load; PRECONDITION also says that the data were others. */
enum status train_checkpoint_read(struct train_progress *out, const char *path, size_t n_epoch,
                                  const json_t *options, struct error *err) MUST_CHECK;

#endif
