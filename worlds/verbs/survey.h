/* Reads the acts of a task once, before an agent learns from them: dictionaries and vocabularies
 * are made of such a pass. */
#ifndef WORLDS_VERBS_SURVEY_H
#define WORLDS_VERBS_SURVEY_H

#include <stdint.h>

#include "base/status.h"

struct act;
struct participant;

typedef enum status (*survey_fn)(void *arg, const struct act *act, struct error *err);

/* Calls `each` for every act of one epoch in order, without padding, and adds to *n_done, until
 * *n_done is n_most (0: there is no bound). */
enum status survey_task(struct participant *task, uint64_t n_most, uint64_t *n_done, survey_fn each,
                        void *arg, struct error *err) MUST_CHECK;

#endif
