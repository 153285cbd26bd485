/* What models take of --memory, and which of them make room for another. Loop. */
#ifndef SERVER_MODEL_BUDGET_H
#define SERVER_MODEL_BUDGET_H

#include "server/model/known_models.h"

/* Bytes of weights and KV pages of all models that are loaded, or are being loaded or unloaded. */
uint64_t budget_used(const struct models *r);

/* Of one model: as it was when loaded last, else the size of its files and --kv-bytes. */
uint64_t budget_of(const struct models *r, const struct model_entry *e);

typedef bool (*budget_may_go_fn)(const struct models *r, const struct model_entry *e);

/* Writes the models to unload so that n_bytes more fit, least recently used first; *ret_n 0: they
 * fit, or will when what unloads now is gone. EXHAUSTED where those that may go are not enough,
 * PRECONDITION where no unload would do. keep is not among them. */
enum status budget_make_room(struct model_entry *out[MODELS_MAX_LOADED], size_t *ret_n,
                             const struct models *r, const struct model_entry *keep,
                             uint64_t n_bytes, budget_may_go_fn may_go,
                             struct error *err) MUST_CHECK;

#endif
