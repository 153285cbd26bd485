/* Sampling parameters by their names in JSON, as the clients of other servers write them. */
#ifndef SERVER_SAMPLING_JSON_H
#define SERVER_SAMPLING_JSON_H

#include <jansson.h>

#include "base/arena.h"
#include "server/sampling_patch.h"

/* temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, seed,
 * max_tokens, min_tokens, stop (a text or a list of them), ignore_eos. */
bool sampling_json_knows(const char *name);

/* Lays the value of one of those names; null is nothing given. INVALID naming it when it is of the
 * wrong type. Texts are copied to the arena. What is out of its range is told by sampling_check. */
enum status sampling_json_set(struct sampling_patch *p, const char *name, const json_t *value,
                              struct arena *arena, struct error *err) MUST_CHECK;

/* All that an object holds; names that are unknown are ignored. */
enum status sampling_json_lay(struct sampling_patch *p, const json_t *object, struct arena *arena,
                              struct error *err) MUST_CHECK;

#endif
