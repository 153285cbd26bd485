/* Agents without a model, as baselines and for trying out worlds. They are ParlAI's agents of the
 * same names, with the same texts. An original never changes, so threads share it; the exception is
 * the dictionary of an agent that learns. */
#ifndef WORLDS_BASELINES_SIMPLE_H
#define WORLDS_BASELINES_SIMPLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "worlds/baselines/config.h"

struct participant;

/* Sets the defaults that config.h names: all members 0, but length_penalty below 0. */
void simple_config_init(struct simple_config *c);

/* Opens the agent of a name: repeat_label, repeat_query, random_candidate, fixed_response, unigram
 * or ir_baseline. config and its texts are copied. NOT_FOUND for another name; the error lists the
 * known ones. INVALID if a dictionary is needed and missing, or a number is out of range. EXHAUSTED
 * without memory. */
enum status simple_open(struct participant **out, const char *name,
                        const struct simple_config *config, struct error *err) MUST_CHECK;

/* Returns the i-th name, NULL behind the last. */
const char *simple_name_at(size_t i);
/* Returns whether the agent of that name needs a dictionary; false for an unknown name. */
bool simple_needs_dictionary(const char *name);

#endif
