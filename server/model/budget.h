/* What models take of --memory, and which of them make room for another one. All functions are
 * called on the loop. */
#ifndef SERVER_MODEL_BUDGET_H
#define SERVER_MODEL_BUDGET_H

#include "server/model/known_models.h"

/* Returns the bytes of weights and KV pages of all models that are loaded, or are being loaded or
 * unloaded. */
uint64_t budget_used(const struct models *r);

/* Returns the bytes of one model: what it had when it was loaded last, or, if it was never loaded,
 * the size of its files and --kv-bytes. */
uint64_t budget_of(const struct models *r, const struct model_entry *e);

/* Returns whether a model may be unloaded to make room. */
typedef bool (*budget_may_go_fn)(const struct models *r, const struct model_entry *e);

/* Finds the models to unload so that n_bytes more fit, the least recently used first. keep is never
 * among them. *ret_n is 0 if the bytes fit already, or will fit once the models that unload now are
 * gone. EXHAUSTED if the models that may go are not enough; PRECONDITION if unloading all models
 * would not be enough. */
enum status budget_make_room(struct model_entry *out[MODELS_MAX_LOADED], size_t *ret_n,
                             const struct models *r, const struct model_entry *keep,
                             uint64_t n_bytes, budget_may_go_fn may_go,
                             struct error *err) MUST_CHECK;

#endif
