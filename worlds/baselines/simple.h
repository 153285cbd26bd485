/* Agents without a model, as baselines and for trying out worlds: ParlAI's agents of the same
 * names, with the same texts. An original never changes, so threads share it; the exception is the
 * dictionary of an agent that learns. */
#ifndef WORLDS_BASELINES_SIMPLE_H
#define WORLDS_BASELINES_SIMPLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "worlds/baselines/config.h"

struct participant;

/* Defaults: all 0, length_penalty below 0. */
void simple_config_init(struct simple_config *c);

/* name: repeat_label, repeat_query, random_candidate, fixed_response, unigram or ir_baseline, as
 * in ParlAI. NOT_FOUND lists the known names; INVALID: a dictionary is needed and missing, or a
 * number is out of range. */
enum status simple_open(struct participant **out, const char *name,
                        const struct simple_config *config, struct error *err) MUST_CHECK;

/* "fixed_response", …; NULL after the last. */
const char *simple_name_at(size_t i);
/* Whether the agent of that name needs a dictionary. */
bool simple_needs_dictionary(const char *name);

#endif
