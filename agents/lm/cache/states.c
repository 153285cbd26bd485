#include "agents/lm/cache/states.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/numerics/kv_type.h"

enum status lm_states_open(struct lm_states *s, size_t n_slots, size_t n_pages, struct error *err)
{
    enum status rc;

    if (n_slots == 0)
        return STATUS_OK;
    rc = kv_slots_open(&s->slots, n_slots, err);
    if (rc != STATUS_OK)
        return rc;
    s->n_slots = n_slots;
    s->n_pages = n_pages;
    s->snapshots = try_alloc(n_slots, sizeof(*s->snapshots));
    s->of_pages = try_alloc(n_pages, sizeof(*s->of_pages));
    if (s->snapshots == NULL || s->of_pages == NULL)
        return error_no_memory(err, n_slots * sizeof(*s->snapshots) + n_pages * sizeof(int32_t),
                               "the list of snapshots");
    for (size_t i = 0; i < n_slots; i++)
        s->snapshots[i].page = -1;
    for (size_t i = 0; i < n_pages; i++)
        s->of_pages[i] = KV_NO_SLOT;
    return STATUS_OK;
}

void lm_states_close(struct lm_states *s)
{
    for (size_t i = 0; s->snapshots != NULL && s->of_pages != NULL && i < s->n_pages; i++)
        lm_states_detach(s, (int32_t)i);
    kv_slots_close(s->slots);
    free(s->snapshots);
    free(s->of_pages);
}

/* The worth of a snapshot: the tokens that the snapshot saves, divided by the snapshot's age. */
static double snapshot_worth(const struct lm_states *s, const struct lm_snapshot *one)
{
    return ((double)one->n_saved + 1.0) / ((double)(s->clock - one->used) + 1.0);
}

/* Returns the slot of the least worthy snapshot among those that no sequence shares, or KV_NO_SLOT.
 */
static int32_t least_snapshot(const struct lm_states *s)
{
    int32_t least = KV_NO_SLOT;

    for (size_t i = 0; i < s->n_slots; i++) {
        if (s->snapshots[i].page < 0 || kv_slot_n_holders(s->slots, (int32_t)i) > 1)
            continue;
        if (least < 0 ||
            snapshot_worth(s, &s->snapshots[i]) < snapshot_worth(s, &s->snapshots[least]))
            least = (int32_t)i;
    }
    return least;
}

int32_t lm_states_take(struct lm_states *s)
{
    int32_t slot = kv_slot_take(s->slots), least;

    if (slot >= 0)
        return slot;
    least = least_snapshot(s);
    if (least < 0)
        return KV_NO_SLOT;
    s->n_evicted++;
    lm_states_detach(s, s->snapshots[least].page);
    return kv_slot_take(s->slots);
}

void lm_states_attach(struct lm_states *s, int32_t page, int32_t slot, uint32_t n_saved)
{
    if (s->of_pages[page] >= 0 || s->snapshots[slot].page >= 0)
        return;
    s->of_pages[page] = kv_slot_share(s->slots, slot);
    s->snapshots[slot] = (struct lm_snapshot){page, n_saved, ++s->clock};
    s->n_snapshots++;
    s->n_made++;
}

void lm_states_detach(struct lm_states *s, int32_t page)
{
    int32_t slot;

    if (s->slots == NULL || s->of_pages[page] < 0)
        return;
    slot = s->of_pages[page];
    s->of_pages[page] = KV_NO_SLOT;
    s->snapshots[slot].page = -1;
    s->n_snapshots--;
    kv_slot_drop(s->slots, slot);
}

size_t lm_states_resume_point(const struct lm_states *s, const struct kv_seq *kv, size_t n_tokens)
{
    size_t n = n_tokens / KV_PAGE_TOKENS;

    assert(n <= kv->n_pages);
    while (n > 0 && s->of_pages[kv->pages[n - 1]] < 0)
        n--;
    return n * KV_PAGE_TOKENS;
}

int32_t lm_states_begin_at(struct lm_states *s, int32_t page)
{
    int32_t slot = s->of_pages[page];

    assert(slot >= 0);
    s->snapshots[slot].used = ++s->clock;
    s->n_begun++;
    return kv_slot_share(s->slots, slot);
}
