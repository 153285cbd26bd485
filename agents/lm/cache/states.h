/* The recurrent state of a model's clones: the slots, and snapshots, which are slots that belong to
 * a published page: the state behind the page's last token. A clone can begin behind a page only
 * where there is one. For a model without recurrent state there are no slots, and nothing is done.
 * Loop. */
#ifndef AGENTS_LM_CACHE_STATES_H
#define AGENTS_LM_CACHE_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/kv/pages.h"
#include "compute/kv/slots.h"

struct lm_snapshot {
    int32_t page;     /* < 0: the slot is no snapshot */
    uint32_t n_saved; /* tokens between the snapshot before and this one */
    uint64_t used;    /* the clock when it was made, or last begun from */
};

struct lm_states {
    struct kv_slots *slots;        /* NULL: the model has no recurrent state */
    struct lm_snapshot *snapshots; /* [n_slots] */
    int32_t *of_pages;             /* [n_pages] a slot, or KV_NO_SLOT */
    size_t n_slots, n_pages;
    uint64_t clock;
    size_t n_snapshots;
    uint64_t n_made, n_evicted, n_begun; /* snapshots: made, evicted, begun from */
};

/* n_slots 0: the model has no recurrent state. After a failure call lm_states_close. */
enum status lm_states_open(struct lm_states *s, size_t n_slots, size_t n_pages,
                           struct error *err) MUST_CHECK;
void lm_states_close(struct lm_states *s); /* no clone may have a slot, and no page a snapshot */

static inline bool lm_states_are_kept(const struct lm_states *s)
{
    return s->slots != NULL;
}

/* A slot for the caller, who holds it: a free one, or that of the snapshot that is worth least: the
 * fewest tokens saved for its age. KV_NO_SLOT: none. */
int32_t lm_states_take(struct lm_states *s);

/* Makes the slot, whose holder the caller stays, the page's snapshot; not where the page has one.
 * The page is published. */
void lm_states_attach(struct lm_states *s, int32_t page, int32_t slot, uint32_t n_saved);
/* Removes the page's snapshot, if it has one: the page is rewritten or forgotten. */
void lm_states_detach(struct lm_states *s, int32_t page);

/* The number of tokens, a multiple of KV_PAGE_TOKENS and at most n_tokens, behind which the
 * sequence has its last snapshot; 0: it has none. */
size_t lm_states_resume_point(const struct lm_states *s, const struct kv_seq *kv, size_t n_tokens);
/* The slot of the page's snapshot, whose holder the caller becomes. */
int32_t lm_states_begin_at(struct lm_states *s, int32_t page);

#endif
