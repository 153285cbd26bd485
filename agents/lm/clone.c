/* Opens, forks, rewinds, saves and restores the clones of a language model. A clone's ids are
 * copied, and its pages are shared until one of the sharers writes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

static struct lm_clone *lm_clone_of(struct clone *c)
{
    return container_of(c, struct lm_clone, base);
}

static const struct lm_clone *const_clone_of(const struct clone *c)
{
    return container_of(c, const struct lm_clone, base);
}

static struct lm *lm_clone_lm_of(const struct lm_clone *c)
{
    return container_of(c->base.agent, struct lm, base);
}

enum status lm_clone_grow(struct lm_clone *c, size_t n, struct error *err)
{
    size_t cap = c->cap_ids < 32 ? 32 : c->cap_ids;
    int32_t *ids;

    if (n <= c->cap_ids)
        return STATUS_OK;
    while (cap < n)
        cap += cap / 2;
    ids = try_realloc(c->ids, cap, sizeof(*ids));
    if (ids == NULL)
        return error_no_memory(err, cap * sizeof(*ids), "a conversation's tokens");
    c->ids = ids;
    c->cap_ids = (uint32_t)cap;
    return STATUS_OK;
}

enum status lm_clone_open(struct clone *base, const struct clone_config *config, struct error *err)
{
    struct lm_clone *c = lm_clone_of(base);

    struct lm *m = lm_clone_lm_of(c);

    lm_clone_pages_init(&c->pages, &m->cache, config->salt);
    c->has_system = config->system != NULL;
    c->opened_s = config->opened_s != 0 ? config->opened_s : (int64_t)time(NULL);
    draft_acceptance_init(&c->acceptance);
    return lm_system_ref(&c->system, &m->systems, config->system, config->system_len, err);
}

void lm_clone_close(struct clone *base)
{
    struct lm_clone *c = lm_clone_of(base);
    struct lm *m = lm_clone_lm_of(c);

    lm_clone_pages_deinit(&c->pages, &m->cache);
    lm_system_unref(&m->systems, c->system);
    lm_history_deinit(&c->history);
    free(c->ids);
    free(c->turn_ends);
}

void lm_clone_info(const struct clone *base, struct clone_info *out)
{
    const struct lm_clone *c = const_clone_of(base);
    const struct lm *m = lm_clone_lm_of(c);

    *out = (struct clone_info){.n_tokens = c->n_ids,
                               .n_pages = c->pages.kv.n_pages,
                               .n_pages_shared = kv_seq_n_shared(m->cache.pages, &c->pages.kv),
                               .state_bytes = sizeof(*c) + c->cap_ids * sizeof(*c->ids) +
                                              c->cap_turns * sizeof(*c->turn_ends) +
                                              c->pages.kv.cap_pages * sizeof(*c->pages.kv.pages)};
}

/* Ids of the first at_turn turns. */
static uint32_t ids_at(const struct lm_clone *c, uint32_t at_turn)
{
    assert(at_turn <= c->n_turns);
    return at_turn == 0 ? 0 : c->turn_ends[at_turn - 1];
}

static enum status copy_past(struct lm_clone *c, const int32_t *ids, uint32_t n_ids,
                             const uint32_t *turn_ends, uint32_t n_turns, struct error *err)
{
    enum status rc;

    if (n_turns == 0)
        return STATUS_OK;
    rc = lm_clone_grow(c, n_ids, err);
    if (rc != STATUS_OK)
        return rc;
    c->turn_ends = try_alloc(n_turns, sizeof(*c->turn_ends));
    if (c->turn_ends == NULL)
        return error_no_memory(err, n_turns * sizeof(*c->turn_ends), "a conversation's turns");
    memcpy(c->ids, ids, n_ids * sizeof(*ids));
    memcpy(c->turn_ends, turn_ends, n_turns * sizeof(*turn_ends));
    c->n_ids = n_ids;
    c->n_turns = c->cap_turns = n_turns;
    return STATUS_OK;
}

/* Copies ids, four bytes a token, and shares every page. A running turn of the parent only changes
 * what follows the shared ids and positions. */
enum status lm_clone_fork(struct clone *base, const struct clone *parent_base, uint32_t at_turn,
                          struct error *err)
{
    struct lm_clone *c = lm_clone_of(base);
    const struct lm_clone *parent = const_clone_of(parent_base);
    struct lm *m = lm_clone_lm_of(parent);
    uint32_t n_ids = ids_at(parent, at_turn);
    size_t n_shared = parent->pages.kv.n_tokens < n_ids ? parent->pages.kv.n_tokens : n_ids;
    enum status rc;

    lm_clone_pages_init(&c->pages, &m->cache, parent->pages.salt);
    c->system = parent->system;
    c->system->n_refs++;
    c->has_system = parent->has_system;
    c->pages.n_evicted = parent->pages.n_evicted < n_ids ? parent->pages.n_evicted : n_ids;
    c->acceptance = parent->acceptance;
    c->opened_s = parent->opened_s;
    c->is_whole = parent->is_whole;
    rc = copy_past(c, parent->ids, n_ids, parent->turn_ends, at_turn, err);
    if (rc == STATUS_OK && lm_remembers(m))
        rc = lm_history_copy(&c->history, &parent->history,
                             at_turn < parent->history.n_turns ? at_turn : parent->history.n_turns,
                             err);
    if (rc == STATUS_OK && n_shared != 0)
        rc = lm_clone_pages_share(&c->pages, &m->cache, &parent->pages, n_shared, err);
    if (rc == STATUS_OK)
        lm_clone_pages_idle(&c->pages, &m->cache);
    return rc; /* clone_fork calls lm_clone_close on failure */
}

enum status lm_clone_rewind(struct clone *base, uint32_t at_turn, struct error *err)
{
    struct lm_clone *c = lm_clone_of(base);
    struct lm *m = lm_clone_lm_of(c);

    if (at_turn > c->n_turns)
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "the conversation has %u turns", c->n_turns);
    c->n_ids = ids_at(c, at_turn);
    c->n_turns = at_turn;
    if (at_turn < c->history.n_turns)
        lm_history_cut(&c->history, at_turn);
    lm_clone_pages_cut(&c->pages, &m->cache, c->n_ids);
    lm_clone_pages_idle(&c->pages, &m->cache);
    return STATUS_OK;
}

void lm_clone_reset(struct clone *base)
{
    struct lm_clone *c = lm_clone_of(base);

    lm_clone_pages_reset(&c->pages, &lm_clone_lm_of(c)->cache);
    c->n_ids = c->n_turns = 0;
    lm_history_cut(&c->history, 0);
}

/* Saved private state, little endian: magic, the model's version, the system prompt, turns, ids,
 * and the messages for a template that is rendered whole. Keys and values are not saved: they can
 * be computed from the ids. */
struct saved_head {
    char magic[8];
    char version[64];
    uint64_t salt;
    uint32_t has_system, system_len, n_turns, n_ids;
};

static const char saved_magic[8] = {'P', 'L', 'M', 'S', 'T', 'A', 'T', '2'};

enum status lm_clone_save(const struct clone *base, struct buf *out, struct error *err)
{
    const struct lm_clone *c = const_clone_of(base);
    struct saved_head head = {.salt = c->pages.salt,
                              .has_system = c->has_system,
                              .system_len = (uint32_t)c->system->len,
                              .n_turns = c->n_turns,
                              .n_ids = c->n_ids};

    memcpy(head.magic, saved_magic, sizeof(head.magic));
    memcpy(head.version, lm_clone_lm_of(c)->version, sizeof(head.version));
    if (buf_append(out, &head, sizeof(head)) != STATUS_OK ||
        buf_append(out, c->system->text, c->system->len) != STATUS_OK ||
        buf_append(out, c->turn_ends, c->n_turns * sizeof(*c->turn_ends)) != STATUS_OK ||
        buf_append(out, c->ids, c->n_ids * sizeof(*c->ids)) != STATUS_OK)
        return error_set(err, STATUS_EXHAUSTED, "no room for the saved state");
    return lm_history_save(&c->history, out, err);
}

/* Checks that turn ends are in order and ids are of this vocabulary. */
static enum status check_saved(const struct saved_head *head, const uint8_t *turn_ends,
                               const uint8_t *ids, size_t context, size_t n_vocab,
                               struct error *err)
{
    uint32_t last = 0, end;
    int32_t id;

    for (uint32_t i = 0; i < head->n_turns; i++) {
        memcpy(&end, turn_ends + i * sizeof(end), sizeof(end));
        if (end < last || end > head->n_ids)
            return error_set(err, STATUS_DATA_LOSS, "saved state: turn %u ends out of order",
                             i + 1);
        last = end;
    }
    if (last != head->n_ids || head->n_ids > context)
        return error_set(err, STATUS_DATA_LOSS, "saved state: it cannot have %u tokens in %u turns",
                         head->n_ids, head->n_turns);
    for (uint32_t i = 0; i < head->n_ids; i++) {
        memcpy(&id, ids + i * sizeof(id), sizeof(id));
        if (id < 0 || (size_t)id >= n_vocab)
            return error_set(err, STATUS_DATA_LOSS,
                             "saved state: token %u is not in the vocabulary", i);
    }
    return STATUS_OK;
}

enum status lm_clone_restore(struct clone *base, const void *data, size_t size_bytes,
                             struct error *err)
{
    struct lm_clone *c = lm_clone_of(base);
    struct lm *m = lm_clone_lm_of(c);
    struct lm_system *system;
    struct saved_head head;
    uint64_t n_before;
    struct lm_clone past = {.base = c->base};
    const uint8_t *at = data;
    enum status rc;

    if (size_bytes < sizeof(head))
        return error_set(err, STATUS_DATA_LOSS,
                         "saved state: it ends after %zu bytes, before its header is complete",
                         size_bytes);
    memcpy(&head, at, sizeof(head));
    at += sizeof(head);
    if (memcmp(head.magic, saved_magic, sizeof(head.magic)) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "saved state: it is not the state of a language model");
    if (memcmp(head.version, m->version, sizeof(head.version)) != 0)
        return error_set(
            err, STATUS_PRECONDITION,
            "saved state: it is of model version %.12s, but this model has version %.12s",
            head.version, m->version);
    n_before =
        sizeof(head) + head.system_len + (uint64_t)4 * head.n_turns + (uint64_t)4 * head.n_ids;
    if (size_bytes < n_before || (size_bytes > n_before && !lm_remembers(m)))
        return error_set(err, STATUS_DATA_LOSS,
                         "saved state: its %zu bytes do not match its header", size_bytes);
    rc = check_saved(&head, at + head.system_len, at + head.system_len + (size_t)4 * head.n_turns,
                     m->limits.context, m->n_vocab, err);
    if (rc != STATUS_OK)
        return rc;
    rc = lm_history_restore(&past.history, at + (n_before - sizeof(head)),
                            size_bytes - (size_t)n_before, err);
    if (rc != STATUS_OK)
        return rc;
    rc = past.history.n_turns <= head.n_turns
             ? lm_system_ref(&system, &m->systems, (const char *)at, head.system_len, err)
             : error_set(err, STATUS_DATA_LOSS, "saved state: it has more messages than turns");
    if (rc != STATUS_OK) {
        lm_history_deinit(&past.history);
        return rc;
    }
    at += head.system_len;
    past.turn_ends = try_alloc(head.n_turns, sizeof(*past.turn_ends));
    if (past.turn_ends == NULL || lm_clone_grow(&past, head.n_ids, err) != STATUS_OK) {
        free(past.turn_ends);
        lm_history_deinit(&past.history);
        lm_system_unref(&m->systems, system);
        return error_no_memory(err, size_bytes, "the saved state");
    }
    memcpy(past.turn_ends, at, head.n_turns * sizeof(*past.turn_ends));
    at += (size_t)4 * head.n_turns;
    memcpy(past.ids, at, head.n_ids * sizeof(*past.ids));

    lm_clone_reset(base);
    lm_system_unref(&m->systems, c->system);
    lm_history_deinit(&c->history);
    free(c->ids);
    free(c->turn_ends);
    c->system = system;
    c->history = past.history;
    c->is_whole = false;
    for (uint32_t i = 0; i < c->history.n; i++)
        c->is_whole = c->is_whole || c->history.messages[i].more_len > 0;
    c->pages.salt = head.salt;
    c->has_system = head.has_system != 0;
    c->ids = past.ids;
    c->cap_ids = past.cap_ids;
    c->n_ids = head.n_ids;
    c->turn_ends = past.turn_ends;
    c->n_turns = c->cap_turns = head.n_turns;
    return STATUS_OK;
}
