/* The text in a checkpoint of `parley train`: where the training is, and the options on which the
 * rest of the training depends. Another process with the same options goes on to the same bits. */
#ifndef WORLDS_VERBS_TRAIN_CHECKPOINT_H
#define WORLDS_VERBS_TRAIN_CHECKPOINT_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"
#include "cli/options/options.h"
#include "worlds/verbs/train_loop.h"

/* Returns the options of the groups by name, without those that change nothing in what is learned.
 * The caller calls json_decref. */
json_t *train_checkpoint_options(const struct option_group *groups, size_t n_groups);

/* Returns the text of any training, made of the options and of the object state, which the function
 * takes. The caller frees the text. */
char *train_checkpoint_join(json_t *state, const json_t *options);
/* Reads the state back from the file at path; the caller calls json_decref. NOT_FOUND: there is no
 * checkpoint. PRECONDITION names the option that had another value. DATA_LOSS: the file is
 * damaged. */
enum status train_checkpoint_load(json_t **out, const char *path, const json_t *options,
                                  struct error *err) MUST_CHECK;
/* Sets err, and returns DATA_LOSS: what the checkpoint at path says cannot be. */
enum status train_checkpoint_damaged(const char *path, struct error *err);
/* Adds to the text of a DATA_LOSS what to do about the file. The function returns err->status. */
enum status train_checkpoint_advise(struct error *err);

/* Returns the text for a train_loop; the caller frees the text. n_epoch: the examples of an
 * epoch. */
char *train_checkpoint_text(const struct train_progress *at, size_t n_epoch, const json_t *options);

/* Reads that text back, as train_checkpoint_load does; PRECONDITION also says that the data have
 * changed. */
enum status train_checkpoint_read(struct train_progress *out, const char *path, size_t n_epoch,
                                  const json_t *options, struct error *err) MUST_CHECK;

#endif
