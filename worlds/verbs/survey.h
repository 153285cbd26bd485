/* One pass over the acts of tasks, before an agent learns from them: for dictionaries and
 * vocabularies. */
#ifndef WORLDS_VERBS_SURVEY_H
#define WORLDS_VERBS_SURVEY_H

#include <stdint.h>

#include "base/status.h"

struct act;
struct participant;

typedef enum status (*survey_fn)(void *arg, const struct act *act, struct error *err);

/* Calls each for the acts of one epoch in turn, no padding, until *n_done is n_most (0: no bound).
 * Adds to *n_done. */
enum status survey_task(struct participant *task, uint64_t n_most, uint64_t *n_done, survey_fn each,
                        void *arg, struct error *err) MUST_CHECK;

#endif
