#include "worlds/teachers/sorted_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "worlds/teachers/length_cache.h"

struct sorted_stream {
    struct episode_stream *from;
    size_t n_episodes, most, fewest;
    bool by_chance;
    uint64_t seed;
    atomic_bool is_over;

    pthread_mutex_t lock; /* guards all members below */
    struct length_cache cache;
    uint64_t next, limit; /* index to fetch next; index behind the epoch's last */
    uint64_t n_dealt;     /* batches dealt so far */
};

void kept_free(void *kept)
{
    struct kept *k = kept;

    if (k == NULL)
        return;
    arena_deinit(&k->memory);
    free(k);
}

static enum status sorted_stream_keep(struct kept **out, const struct example *e, struct error *err)
{
    struct kept *k = try_alloc(1, sizeof(*k));
    struct act copy;

    if (k == NULL)
        return error_no_memory(err, sizeof(*k), "an example that waits");
    arena_init(&k->memory, SIZE_MAX);
    if (act_copy(&copy, &e->act, &k->memory, err) != STATUS_OK) {
        kept_free(k);
        return err->status;
    }
    copy.cap = 0;
    k->example.act = copy;
    /* hidden labels are not in the act: their texts are copied separately */
    if (e->labels.type == VALUE_LIST) {
        struct act labels, own;

        act_init(&labels, &k->memory);
        if (act_set(&labels, ACT_LABELS, e->labels, err) != STATUS_OK ||
            act_copy(&own, &labels, &k->memory, err) != STATUS_OK) {
            kept_free(k);
            return err->status;
        }
        k->example.labels = *act_list(&own, ACT_LABELS);
    }
    *out = k;
    return STATUS_OK;
}

enum status sorted_stream_open(struct sorted_stream **out, struct episode_stream *from,
                               const struct teacher_config *config, struct error *err)
{
    struct sorted_stream *s;
    size_t two = 2 * config->batch_size;

    if (episodes_n_examples(from) != episodes_n_episodes(from))
        return error_set(
            err, STATUS_INVALID,
            "a stream can be sorted by length only if each turn is an episode: squash it");
    s = try_alloc(1, sizeof(*s));
    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "sorting a stream");
    s->from = from;
    s->n_episodes = episodes_n_episodes(from);
    s->most = two > SORTED_STREAM_MOST ? two : SORTED_STREAM_MOST;
    s->fewest = two > SORTED_STREAM_FEWEST ? two : SORTED_STREAM_FEWEST;
    s->by_chance = config->length_cache == LENGTH_CACHE_POP;
    s->seed = config->seed;
    s->limit = s->n_episodes;
    s->cache.batch_size = config->batch_size;
    s->cache.range = config->length_range == 0 ? 1 : (uint32_t)config->length_range;
    (void)pthread_mutex_init(&s->lock, NULL); /* cannot fail with default attributes */
    atomic_init(&s->is_over, s->n_episodes == 0);
    *out = s;
    return STATUS_OK;
}

void sorted_stream_close(struct sorted_stream *s)
{
    if (s == NULL)
        return;
    length_cache_clear(&s->cache, kept_free);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Under the lock: one more example into the cache. */
static enum status sorted_stream_read_one(struct sorted_stream *s, struct error *err)
{
    const struct example *e;
    struct kept *k = NULL;
    void *lease;
    size_t n;
    enum status rc = episodes_fetch(s->from, s->next, &e, &n, &lease, err);

    if (rc != STATUS_OK)
        return rc;
    s->next++;
    rc = sorted_stream_keep(&k, e, err);
    episodes_release(lease);
    if (rc == STATUS_OK)
        rc = length_cache_put(&s->cache, act_count_words(act_text(&k->example.act)), k, err);
    if (rc != STATUS_OK)
        kept_free(k);
    return rc;
}

static uint64_t which(const struct sorted_stream *s)
{
    const uint32_t counter[4] = {(uint32_t)s->n_dealt, (uint32_t)(s->n_dealt >> 32), 0, 5};
    const uint32_t key[2] = {(uint32_t)s->seed, (uint32_t)(s->seed >> 32)};
    uint32_t drawn[4];

    if (!s->by_chance)
        return s->n_dealt;
    philox4x32(counter, key, drawn);
    return drawn[0];
}

/* Under the lock. */
static enum status sorted_stream_deal_batch(struct sorted_stream *s, void **out, size_t *ret_n,
                                            struct error *err)
{
    while (s->next < s->limit && s->cache.n < s->most &&
           (s->cache.n < s->fewest || s->cache.n_full == 0))
        if (sorted_stream_read_one(s, err) != STATUS_OK)
            return err->status;
    *ret_n = s->cache.n_full > 0 ? length_cache_take(&s->cache, which(s), out)
                                 : length_cache_take_fullest(&s->cache, out);
    s->n_dealt++;
    atomic_store(&s->is_over, s->next == s->limit && s->cache.n == 0);
    return STATUS_OK;
}

enum status sorted_stream_deal(struct sorted_stream *s, bool begins_anew, struct kept **out,
                               size_t *ret_n, struct error *err)
{
    enum status rc;

    (void)pthread_mutex_lock(&s->lock); /* cannot fail: the lock is not destroyed while in use */
    if (begins_anew && s->next == s->limit && s->cache.n == 0)
        s->limit += s->n_episodes;
    rc = sorted_stream_deal_batch(s, (void **)out, ret_n, err);
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

bool sorted_stream_is_over(struct sorted_stream *s)
{
    return atomic_load(&s->is_over);
}

void sorted_stream_reset(struct sorted_stream *s)
{
    (void)pthread_mutex_lock(&s->lock);
    length_cache_clear(&s->cache, kept_free);
    s->next = s->n_dealt = 0;
    s->limit = s->n_episodes;
    atomic_store(&s->is_over, s->n_episodes == 0);
    (void)pthread_mutex_unlock(&s->lock);
}
