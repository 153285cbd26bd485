/* A language model's device: its figures, and what it has lost. */
#include "agents/lm/lm.h"

void lm_read_statistics(struct lm *m)
{
    if (m->backend->type->statistics != NULL)
        m->backend->type->statistics(m->backend, &m->figures);
}

void lm_notice_losses(struct lm *m)
{
    lm_read_statistics(m);
    if (m->n_losses_seen == m->n_losses)
        return;
    m->n_losses_seen = m->n_losses;
    lm_cache_invalidate(&m->cache);
}
