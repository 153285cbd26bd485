/* Loaders take chunk numbers in turn, at most a window ahead of the oldest chunk with episodes
 * left; they read, check and parse without the lock, then put the chunk into its slot. A fetch
 * waits for the slot, takes a reference and, with the last episode, frees the slot for the chunk
 * one window later. Chunk numbers run on across epochs. A reset begins a new generation: chunks
 * still being loaded for the old one are dropped. A loader's failure is kept in the chunk and
 * returned by each fetch from it. */
#include "worlds/teachers/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "worlds/teachers/data_file.h"

enum { CHUNK_BYTES = 256 << 10, MAX_CHUNK_EPISODES = 4096, MAX_LOADERS = 64 };

/* Episodes that lie one behind the other. A loader makes it; its slot has the first reference, and
 * each lease is one more; the last to go frees it. */
struct episode_chunk {
    atomic_size_t n_refs;
    struct arena memory;      /* of the acts' values that are not in text */
    char *text;               /* the episodes' bytes */
    struct example *examples; /* [starts[n_episodes]] */
    uint32_t *starts;         /* [n_episodes + 1] where each episode begins in examples */
    size_t n_episodes;
    struct error err; /* why loading failed; status OK: it did not */
};

struct stream_slot {
    struct episode_chunk *chunk; /* NULL: the chunk is not loaded, or no episode of it is left */
    uint64_t number;             /* number of the chunk that was loaded last */
    size_t n_left;               /* episodes of the chunk that are not fetched yet */
};

struct episode_stream {
    struct data_index index;
    const struct teacher_config *config;
    struct text id;
    bool loops;
    bool needs_labels; /* an act without labels is bad; so in a jsonl: source, not in built data */
    int fd;            /* the data file */
    size_t n_episodes, n_examples; /* of this rank */
    size_t n_cut;                  /* examples at the end of the last episode that do not count */
    size_t per_chunk;              /* episodes of a chunk; an epoch's last chunk may have fewer */
    uint64_t n_chunks;             /* chunks of an epoch */
    pthread_t loaders[MAX_LOADERS];
    size_t n_loaders;

    pthread_mutex_t lock; /* guards all members below */
    pthread_cond_t may_load, has_loaded;
    struct stream_slot *slots; /* [window]: chunk number n is in slot n % window */
    size_t window;
    uint64_t next_load, oldest; /* numbers of chunks: the next to load; the oldest with episodes */
    uint64_t generation;        /* how often the stream was reset */
    bool is_closing;
};

/* Locks and conditions are initialised and not destroyed while in use: none of these can fail. */
static void episode_stream_lock(struct episode_stream *s)
{
    (void)pthread_mutex_lock(&s->lock);
}

static void episode_stream_unlock(struct episode_stream *s)
{
    (void)pthread_mutex_unlock(&s->lock);
}

/* --- chunks ---------------------------------------------------------------------------------- */

static void chunk_unref(struct episode_chunk *c)
{
    if (c == NULL || atomic_fetch_sub_explicit(&c->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    arena_deinit(&c->memory);
    free(c->text);
    free(c->examples);
    free(c->starts);
    free(c);
}

static enum status read_all(int fd, char *to, size_t size_bytes, uint64_t offset, struct error *err)
{
    while (size_bytes > 0) {
        ssize_t n = pread(fd, to, size_bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(err, STATUS_DATA_LOSS, "%s",
                             n == 0 ? "the data file has become shorter since it was indexed"
                                    : strerror(errno));
        to += n;
        offset += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return STATUS_OK;
}

static const struct data_entry *episode_stream_entry_of(const struct episode_stream *s,
                                                        size_t episode)
{
    return &s->index.entries[episode * s->config->n_ranks + s->config->rank];
}

static enum status parse_line(const struct episode_stream *s, struct episode_chunk *c,
                              const char *line, size_t len, struct example *out, struct error *err)
{
    struct act a;

    if (act_from_json(&a, line, len, &c->memory, err) != STATUS_OK ||
        source_check(&a, &c->memory, s->needs_labels, err) != STATUS_OK)
        return err->status;
    return example_make(out, &a, s->id, s->config,
                        !act_has(&a, ACT_EPISODE_DONE) || act_is(&a, ACT_EPISODE_DONE), &c->memory,
                        err);
}

static bool stream_is_blank(const char *line, size_t len)
{
    while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    return len == 0;
}

static enum status changed(struct error *err, const struct data_entry *e)
{
    return error_set(err, STATUS_DATA_LOSS,
                     "the data file has changed since it was indexed, at byte %llu",
                     (unsigned long long)e->offset);
}

/* Parses one episode's lines, whose checksum is right: takes the same lines as the index's build.
 */
static enum status parse_episode(const struct episode_stream *s, struct episode_chunk *c,
                                 const struct data_entry *e, const char *text,
                                 struct example *examples, struct error *err)
{
    const char *end = text + e->size_bytes;
    size_t n = 0;

    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t len = (size_t)((newline == NULL ? end : newline) - text);

        if (!stream_is_blank(text, len)) {
            if (n == e->n_examples && s->config->skip_bad)
                break; /* only bad lines follow the last good one */
            if (n == e->n_examples)
                return changed(err, e);
            if (parse_line(s, c, text, len, &examples[n], err) == STATUS_OK)
                n++;
            else if (err->status != STATUS_INVALID)
                return err->status;
            else if (!s->config->skip_bad)
                return changed(err, e);
        }
        text += len + 1;
    }
    if (n != e->n_examples)
        return changed(err, e);
    if (!act_is(&examples[n - 1].act,
                ACT_EPISODE_DONE)) { /* the file's last episode, which is not closed */
        struct act last;

        act_share(&last, &examples[n - 1].act, &c->memory);
        if (act_force(&last, ACT_EPISODE_DONE, value_bool(true), err) != STATUS_OK)
            return err->status;
        last.cap = 0;
        examples[n - 1].act = last;
    }
    return STATUS_OK;
}

/* n episodes from first on, of this rank. */
static enum status episode_stream_load(const struct episode_stream *s, struct episode_chunk *c,
                                       size_t first, size_t n, struct error *err)
{
    bool is_run = s->config->n_ranks == 1; /* the chunk is one piece of the file */
    size_t n_examples = 0, n_bytes = 0, at = 0;

    for (size_t i = 0; i < n; i++) {
        n_examples += episode_stream_entry_of(s, first + i)->n_examples;
        n_bytes += episode_stream_entry_of(s, first + i)->size_bytes;
    }
    if (is_run)
        n_bytes = (size_t)(episode_stream_entry_of(s, first + n - 1)->offset -
                           episode_stream_entry_of(s, first)->offset) +
                  episode_stream_entry_of(s, first + n - 1)->size_bytes;
    c->text = try_alloc(n_bytes + 1, 1);
    c->examples = try_alloc(n_examples, sizeof(*c->examples));
    c->starts = try_alloc(n + 1, sizeof(*c->starts));
    if (c->text == NULL || c->examples == NULL || c->starts == NULL)
        return error_no_memory(err, n_bytes, "a chunk of data");
    if (is_run && read_all(s->fd, c->text, n_bytes, episode_stream_entry_of(s, first)->offset,
                           err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        const struct data_entry *e = episode_stream_entry_of(s, first + i);
        char *text =
            c->text + (is_run ? e->offset - episode_stream_entry_of(s, first)->offset : at);

        if (!is_run && read_all(s->fd, text, e->size_bytes, e->offset, err) != STATUS_OK)
            return err->status;
        if (crc32c(0, text, e->size_bytes) != e->crc)
            return changed(err, e);
        if (parse_episode(s, c, e, text, &c->examples[c->starts[i]], err) != STATUS_OK)
            return err->status;
        c->starts[i + 1] = c->starts[i] + e->n_examples;
        at += e->size_bytes;
    }
    return STATUS_OK;
}

static size_t chunk_episodes(const struct episode_stream *s, uint64_t number)
{
    size_t first = (size_t)(number % s->n_chunks) * s->per_chunk;

    return s->n_episodes - first < s->per_chunk ? s->n_episodes - first : s->per_chunk;
}

/* NULL when there is no memory even for its error. */
static struct episode_chunk *chunk_load(const struct episode_stream *s, uint64_t number)
{
    struct episode_chunk *c = try_alloc(1, sizeof(*c));

    if (c == NULL)
        return NULL;
    atomic_init(&c->n_refs, 1);
    arena_init(&c->memory, SIZE_MAX);
    c->n_episodes = chunk_episodes(s, number);
    (void)episode_stream_load(s, c, (size_t)(number % s->n_chunks) * s->per_chunk, c->n_episodes,
                              &c->err);
    return c;
}

/* --- loaders --------------------------------------------------------------------------------- */

/* Under the lock. */
static bool has_work(const struct episode_stream *s)
{
    return s->next_load < s->oldest + s->window && (s->loops || s->next_load < s->n_chunks);
}

static void *loader(void *arg)
{
    struct episode_stream *s = arg;

    episode_stream_lock(s);
    while (!s->is_closing) {
        uint64_t number, generation = s->generation;
        struct episode_chunk *c;

        if (!has_work(s)) {
            (void)pthread_cond_wait(&s->may_load, &s->lock);
            continue;
        }
        number = s->next_load++;
        episode_stream_unlock(s);
        c = chunk_load(s, number);
        episode_stream_lock(s);
        if (c != NULL && generation == s->generation) {
            s->slots[number % s->window] =
                (struct stream_slot){.chunk = c, .number = number, .n_left = c->n_episodes};
            (void)pthread_cond_broadcast(&s->has_loaded);
        } else if (c != NULL) {
            chunk_unref(c);
        } else if (generation == s->generation) { /* each fetch of the chunk returns this error */
            s->slots[number % s->window] = (struct stream_slot){
                .chunk = NULL, .number = number, .n_left = chunk_episodes(s, number)};
            (void)pthread_cond_broadcast(&s->has_loaded);
        }
    }
    episode_stream_unlock(s);
    return NULL;
}

/* Under the lock: one episode less to fetch; frees slots that are done. */
static void count_fetched(struct episode_stream *s, struct stream_slot *slot)
{
    if (--slot->n_left > 0)
        return;
    chunk_unref(slot->chunk);
    slot->chunk = NULL;
    while (s->oldest < s->next_load && s->slots[s->oldest % s->window].number == s->oldest &&
           s->slots[s->oldest % s->window].n_left == 0)
        s->oldest++;
    (void)pthread_cond_broadcast(&s->may_load);
}

enum status episodes_fetch(struct episode_stream *s, uint64_t index, const struct example **out,
                           size_t *ret_n, void **ret_lease, struct error *err)
{
    uint64_t epoch = index / s->n_episodes, episode = index % s->n_episodes;
    uint64_t number = epoch * s->n_chunks + episode / s->per_chunk;
    size_t i = (size_t)(episode % s->per_chunk);
    struct stream_slot *slot = &s->slots[number % s->window];
    struct episode_chunk *c;

    episode_stream_lock(s);
    while (slot->number != number || slot->n_left == 0)
        (void)pthread_cond_wait(&s->has_loaded, &s->lock);
    c = slot->chunk;
    if (c != NULL)
        (void)atomic_fetch_add_explicit(&c->n_refs, 1,
                                        memory_order_relaxed); /* the slot has a reference */
    count_fetched(s, slot);
    episode_stream_unlock(s);
    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a chunk of data");
    if (c->err.status != STATUS_OK) {
        *err = c->err;
        chunk_unref(c);
        return err->status;
    }
    *out = &c->examples[c->starts[i]];
    *ret_n = c->starts[i + 1] - c->starts[i] - (episode + 1 == s->n_episodes ? s->n_cut : 0);
    *ret_lease = c;
    return STATUS_OK;
}

void episodes_release(void *lease)
{
    chunk_unref(lease);
}

/* Under the lock, or while no other thread runs. Leaves no slot with a chunk or a matching number.
 */
static void clear_slots(struct episode_stream *s)
{
    for (size_t i = 0; i < s->window; i++) {
        chunk_unref(s->slots[i].chunk);
        s->slots[i] = (struct stream_slot){.number = UINT64_MAX};
    }
}

void episodes_reset(struct episode_stream *s)
{
    episode_stream_lock(s);
    s->generation++;
    clear_slots(s);
    s->next_load = s->oldest = 0;
    (void)pthread_cond_broadcast(&s->may_load);
    episode_stream_unlock(s);
}

/* --- life ------------------------------------------------------------------------------------ */

/* Cuts the stream behind its first examples, perhaps within an episode. */
static void episode_stream_cut(struct episode_stream *s, size_t n_first)
{
    size_t n = 0, n_examples = 0;

    while (n_examples < n_first)
        n_examples += episode_stream_entry_of(s, n++)->n_examples;
    s->n_episodes = n;
    s->n_examples = n_first;
    s->n_cut = n_examples - n_first;
}

static void measure(struct episode_stream *s)
{
    const struct teacher_config *config = s->config;
    uint64_t mean;

    s->n_episodes = 0;
    if (s->index.n_episodes > config->rank)
        s->n_episodes =
            (size_t)((s->index.n_episodes - config->rank + config->n_ranks - 1) / config->n_ranks);
    s->n_examples = (size_t)s->index.n_examples;
    if (config->n_ranks > 1) {
        s->n_examples = 0;
        for (size_t i = 0; i < s->n_episodes; i++)
            s->n_examples += episode_stream_entry_of(s, i)->n_examples;
    }
    if (config->n_first > 0 && config->n_first < s->n_examples && !s->loops)
        episode_stream_cut(s, (size_t)config->n_first);
    mean = s->index.data_bytes / s->index.n_episodes + 1;
    s->per_chunk = mean > CHUNK_BYTES ? 1 : (size_t)(CHUNK_BYTES / mean);
    s->per_chunk = s->per_chunk < MAX_CHUNK_EPISODES ? s->per_chunk : MAX_CHUNK_EPISODES;
    s->n_chunks = (s->n_episodes + s->per_chunk - 1) / s->per_chunk;
}

static enum status episode_stream_start(struct episode_stream *s, struct error *err)
{
    size_t n = s->config->n_loaders == 0 ? 1 : s->config->n_loaders;

    n = n < MAX_LOADERS ? n : MAX_LOADERS;
    s->window = 2 * n + 2;
    s->slots = try_alloc(s->window, sizeof(*s->slots));
    if (s->slots == NULL)
        return error_no_memory(err, s->window * sizeof(*s->slots), "a stream");
    clear_slots(s);
    for (; s->n_loaders < n && s->n_episodes > 0; s->n_loaders++) {
        int rc = pthread_create(&s->loaders[s->n_loaders], NULL, loader, s);

        if (rc != 0 && s->n_loaders == 0)
            return error_set(err, STATUS_EXHAUSTED, "cannot start a thread to load data: %s",
                             strerror(rc));
        if (rc != 0)
            break; /* fewer loaders suffice */
    }
    return STATUS_OK;
}

enum status episodes_open(struct episode_stream **out, const char *task, struct text id,
                          const struct teacher_config *config, bool loops, struct error *err)
{
    struct episode_stream *s = try_alloc(1, sizeof(*s));
    char *path = NULL;
    enum status rc;

    if (s == NULL)
        return error_no_memory(err, sizeof(*s), "a stream");
    s->config = config;
    s->id = id;
    s->loops = loops;
    s->needs_labels = strncmp(task, "jsonl:", 6) == 0;
    s->fd = -1;
    (void)pthread_mutex_init(&s->lock, NULL); /* cannot fail with default attributes */
    (void)pthread_cond_init(&s->may_load, NULL);
    (void)pthread_cond_init(&s->has_loaded, NULL);
    rc = data_path_of(&path, task, config, err);
    if (rc == STATUS_OK)
        rc = data_ready(&s->index, path, task, config, err);
    if (rc == STATUS_OK) {
        s->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (s->fd < 0)
            rc = error_set(err, STATUS_DENIED, "%s: %s", path, strerror(errno));
    }
    if (rc == STATUS_OK && s->index.n_episodes == 0)
        rc = error_set(err, STATUS_INVALID, "%s: no examples", path);
    if (rc == STATUS_OK) {
        measure(s);
        rc = episode_stream_start(s, err);
    }
    free(path);
    if (rc == STATUS_OK)
        *out = s;
    else
        episodes_close(s);
    return rc;
}

void episodes_close(struct episode_stream *s)
{
    if (s == NULL)
        return;
    episode_stream_lock(s);
    s->is_closing = true;
    (void)pthread_cond_broadcast(&s->may_load);
    episode_stream_unlock(s);
    for (size_t i = 0; i < s->n_loaders; i++)
        (void)pthread_join(s->loaders[i], NULL);
    if (s->slots != NULL)
        clear_slots(s);
    free(s->slots);
    if (s->fd >= 0)
        (void)close(s->fd); /* the file was only read */
    data_index_close(&s->index);
    (void)pthread_cond_destroy(&s->has_loaded);
    (void)pthread_cond_destroy(&s->may_load);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

size_t episodes_n_episodes(const struct episode_stream *s)
{
    return s->n_episodes;
}

size_t episodes_n_examples(const struct episode_stream *s)
{
    return s->n_examples;
}

size_t episodes_n_skipped(const struct episode_stream *s)
{
    return (size_t)s->index.n_skipped;
}
