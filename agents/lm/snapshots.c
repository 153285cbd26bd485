/* Where a turn of a model with recurrent state leaves snapshots, and which slots its steps read and
 * write. */
#include "agents/lm/lm.h"

static uint32_t whole_pages(uint32_t n_tokens)
{
    return n_tokens / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
}

/* Adds a place in rising order, once. */
static void add_place(struct lm_snapshots *s, uint32_t at)
{
    uint32_t i = s->n_places;

    at = whole_pages(at);
    for (uint32_t k = 0; k < s->n_places; k++)
        if (s->places[k] == at)
            return;
    if (at == 0)
        return;
    for (; i > 0 && s->places[i - 1] > at; i--)
        s->places[i] = s->places[i - 1];
    s->places[i] = at;
    s->n_places++;
}

/* Where a control token stands in a prompt. */
struct stands {
    uint32_t n, second, before, last; /* before: the last but one */
};

static struct stands stands_of(const int32_t *ids, uint32_t n_ids, int32_t id)
{
    struct stands at = {0};

    for (uint32_t i = 0; i < n_ids; i++) {
        if (ids[i] != id)
            continue;
        at.second = ++at.n == 2 ? i : at.second;
        at.before = at.last;
        at.last = i;
    }
    return at;
}

/* Messages begin with the control token that begins the first one, whatever the template is: the
 * second message, and the one before the reply, begin where others may differ. A token that begins
 * the prompt alone is none of these. */
void lm_snapshots_begin(struct lm_snapshots *s, const struct lm *m, const struct lm_clone *c,
                        uint32_t n_prompt)
{
    struct stands at = {0};
    int32_t begin = -1;

    s->next = KV_NO_SLOT;
    if (!lm_states_are_kept(&m->cache.states) || n_prompt == 0)
        return;
    for (uint32_t i = 0, n_kinds = 0; i < n_prompt && n_kinds < 2 && at.n < 2; i++) {
        if (c->ids[i] == begin || !vocab_is_control(m->vocab, c->ids[i]))
            continue;
        begin = c->ids[i];
        at = stands_of(c->ids, n_prompt, begin);
        n_kinds++;
    }
    add_place(s, at.second);
    add_place(s, at.before);
    add_place(s, n_prompt - 1); /* the last id is always computed */
}

/* The first place behind from where the turn leaves a snapshot, 0: none. */
static uint32_t next_place(const struct lm_snapshots *s, uint32_t junction, uint32_t from)
{
    uint32_t next = (from / SNAPSHOT_EVERY + 1) * SNAPSHOT_EVERY;

    for (uint32_t i = 0; i < s->n_places; i++)
        if (s->places[i] > from && s->places[i] < next)
            next = s->places[i];
    return junction > from && junction < next ? junction : next;
}

void lm_snapshots_drop(struct lm *m, struct lm_turn *t)
{
    struct lm_snapshots *s = &t->snapshots;

    if (!lm_states_are_kept(&m->cache.states))
        return;
    kv_slot_drop(m->cache.states.slots, s->next);
    s->next = KV_NO_SLOT;
    while (s->n_marks > 0)
        kv_slot_drop(m->cache.states.slots, s->marks[--s->n_marks].slot);
}

enum status lm_snapshots_reserve(struct lm *m, struct lm_clone *c, struct lm_turn *t, size_t n,
                                 struct error *err)
{
    struct lm_snapshots *s = &t->snapshots;
    struct lm_states *states = &m->cache.states;
    const uint32_t from = c->pages.kv.n_tokens, end = from + (uint32_t)n;

    if (!lm_states_are_kept(states))
        return STATUS_OK;
    lm_snapshots_drop(m, t);
    s->next = lm_states_take(states);
    if (s->next < 0)
        return error_set(err, STATUS_EXHAUSTED, "all %zu slots of recurrent state are in use",
                         states->n_slots);
    for (uint32_t at = next_place(s, c->pages.junction, from);
         at < end && s->n_marks < SNAPSHOTS_A_STEP; at = next_place(s, c->pages.junction, at)) {
        const int32_t slot = lm_states_take(states);

        if (slot < 0)
            break; /* rows need slots more */
        s->marks[s->n_marks].at = at;
        s->marks[s->n_marks++].slot = slot;
    }
    return STATUS_OK;
}

void lm_snapshots_lay_out(const struct lm *m, const struct lm_clone *c, struct lm_turn *t,
                          struct transformer_row *out)
{
    struct lm_snapshots *s = &t->snapshots;
    const uint32_t from = c->pages.kv.n_tokens;
    const size_t n = out->n_tokens - t->n_draft_tokens;

    if (!lm_states_are_kept(&m->cache.states))
        return;
    out->n_drafts = t->n_draft_tokens;
    out->state = c->pages.state;
    out->saves = s->saves;
    out->n_saves = 0;
    for (uint32_t i = 0; i < s->n_marks && s->marks[i].at - from < n; i++)
        s->saves[out->n_saves++] = (struct state_save){s->marks[i].at - from, s->marks[i].slot};
    s->saves[out->n_saves++] = (struct state_save){n, s->next};
}

/* Makes the slot the snapshot behind at tokens. */
static void leave_snapshot(struct lm *m, const struct lm_clone *c, uint32_t at, int32_t slot,
                           bool stays)
{
    const struct kv_seq *kv = &c->pages.kv;
    const int32_t page = kv->pages[at / KV_PAGE_TOKENS - 1];

    if (m->cache.prefixes == NULL || !prefix_cache_has(m->cache.prefixes, page))
        return;
    lm_states_attach(
        &m->cache.states, page, slot,
        at - (uint32_t)lm_states_resume_point(&m->cache.states, kv, at - KV_PAGE_TOKENS));
    if (stays)
        lm_disk_snapshot_made(&m->cache.disk, page);
}

/* Behind whole pages of a reply: the snapshot replaces the one that the reply left before. The last
 * one goes to disk. */
static void roll(struct lm *m, struct lm_clone *c, struct lm_turn *t)
{
    struct lm_snapshots *s = &t->snapshots;
    const uint32_t at = c->pages.kv.n_tokens;

    if (at <= t->n_prompt || at % KV_PAGE_TOKENS != 0)
        return;
    if (s->rolled > 0 && s->rolled % SNAPSHOT_EVERY != 0)
        lm_states_detach(&m->cache.states, c->pages.kv.pages[s->rolled / KV_PAGE_TOKENS - 1]);
    leave_snapshot(m, c, at, c->pages.state, false);
    s->rolled = at;
}

void lm_snapshots_end(struct lm *m, const struct lm_clone *c, struct lm_turn *t)
{
    const uint32_t n = t->snapshots.rolled / KV_PAGE_TOKENS;
    const struct kv_seq *kv = &c->pages.kv;

    lm_snapshots_drop(m, t);
    if (n == 0 || n > kv->n_pages || m->cache.states.of_pages[kv->pages[n - 1]] < 0)
        return;
    lm_disk_snapshot_made(&m->cache.disk, kv->pages[n - 1]);
    lm_disk_write(&m->cache.disk);
}

void lm_snapshots_stepped(struct lm *m, struct lm_clone *c, struct lm_turn *t, uint32_t n_before)
{
    struct lm_snapshots *s = &t->snapshots;
    const uint32_t n_tokens = c->pages.kv.n_tokens;

    if (!lm_states_are_kept(&m->cache.states))
        return;
    if (n_tokens == n_before || s->next < 0) {
        lm_snapshots_drop(m, t);
        return;
    }
    kv_slot_drop(m->cache.states.slots, c->pages.state);
    c->pages.state = s->next;
    s->next = KV_NO_SLOT;
    for (uint32_t i = 0; i < s->n_marks && s->marks[i].at < n_tokens; i++)
        leave_snapshot(m, c, s->marks[i].at, s->marks[i].slot, true);
    if (n_tokens == next_place(s, c->pages.junction, n_tokens - 1))
        leave_snapshot(m, c, n_tokens, c->pages.state, true);
    else
        roll(m, c, t);
    if (c->pages.junction <= n_tokens)
        c->pages.junction = 0;
    lm_snapshots_drop(m, t); /* the marks; those that became snapshots are the pages' now */
}
