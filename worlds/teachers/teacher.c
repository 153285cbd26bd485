/* An original holds either a table (all examples in memory) or a stream (chunks of a data file,
 * which loader threads read), and a shared index; each clone takes an episode by the index.
 *
 * The index only counts up; an epoch is n_episodes of its values. A clone works in one epoch. It
 * takes an episode of the next epoch only after it has reported the end of its own epoch and all
 * episodes of that epoch have ended. So an epoch of training data ends for all clones together. */
#include "worlds/teachers/teacher.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/judge.h"
#include "worlds/teachers/sorted_stream.h"
#include "worlds/teachers/stream.h"
#include "worlds/teachers/table.h"

struct teacher {
    struct participant base;
    struct teacher_config config;
    char *id;
    struct metrics *metrics;
    struct judge *judge; /* of the task's own metrics; NULL: it has none */
    struct example_table table;
    struct episode_stream *stream; /* NULL: the table has all examples */
    struct sorted_stream *sorted;  /* NULL: episodes come in order */
    size_t n_episodes;             /* of this rank */
    size_t n_examples;             /* of this rank */
    bool loops, shuffles;          /* datatype_loops, datatype_shuffles */
    char warning[160];             /* "": there is no warning */

    atomic_uint_fast64_t next;  /* index of the next episode (or batch) */
    atomic_uint_fast64_t ended; /* episodes whose last turn has been acted */

    struct batches batches; /* used by batch_sort */
    pthread_mutex_t lock;   /* guards the order of batches, and next if batches are dealt */
    uint32_t batches_epoch; /* how often the batches were shuffled; guarded by lock */
    atomic_bool deals;      /* batch_act was called: next counts batches */
};

struct teacher_clone {
    struct participant_clone base;
    const struct example *examples; /* [n_examples] the episode */
    const struct act *said;         /* the example's act that the labels belong to */
    struct value labels; /* those that the next reply is scored by; VALUE_NULL: it is not scored */
    uint64_t index;      /* the episode's index */
    uint64_t epoch;      /* the epoch that the clone works in */
    void *lease;         /* keeps the episode's chunk of a stream; NULL: there is none */
    struct kept *kept;   /* the example that a sorted stream dealt; NULL: there is none */
    uint32_t next, n_examples; /* next == n_examples: the episode has ended, or there is none */
    uint32_t shard;            /* of the metrics */
    bool is_padding;           /* the clone's last act was padding */
    bool has_acted;            /* the clone has acted since the last reset */
    atomic_bool was_told; /* epoch_done returned true when all episodes of the epoch had ended */
};

static struct teacher *original_of(const struct teacher_clone *c)
{
    return container_of(c->base.original, struct teacher, base);
}

/* --- episodes -------------------------------------------------------------------------------- */

static uint64_t draw_episode(const struct teacher *t, uint64_t ticket)
{
    const uint32_t counter[4] = {(uint32_t)ticket, (uint32_t)(ticket >> 32), 0, 4};
    const uint32_t key[2] = {(uint32_t)t->config.seed, (uint32_t)(t->config.seed >> 32)};
    uint32_t drawn[4];
    uint64_t wide;

    philox4x32(counter, key, drawn);
    wide = (uint64_t)drawn[0] << 32 | drawn[1];
    return wide % t->n_episodes;
}

/* Whether the clone's epoch has an index left; if so the clone takes it. */
static bool take_index(struct teacher *t, struct teacher_clone *c)
{
    uint64_t index = atomic_load(&t->next);

    if (t->n_episodes == 0)
        return false;
    for (;;) {
        uint64_t limit = (c->epoch + 1) * t->n_episodes;

        if (index >= limit) {
            if (!t->loops || !atomic_load(&c->was_told))
                return false;
            c->epoch = index / t->n_episodes;
            atomic_store(&c->was_told, false);
            continue;
        }
        if (atomic_compare_exchange_weak(&t->next, &index, index + 1)) {
            c->index = index;
            return true;
        }
    }
}

static void leave_episode(struct teacher_clone *c)
{
    if (c->lease != NULL)
        episodes_release(c->lease);
    c->lease = NULL;
    kept_free(c->kept);
    c->kept = NULL;
    c->examples = NULL;
    c->next = c->n_examples = 0;
}

/* *ret_found: the clone has an episode. */
static enum status enter_episode(struct teacher *t, struct teacher_clone *c, bool *ret_found,
                                 struct error *err)
{
    size_t episode, n;

    leave_episode(c);
    *ret_found = false;
    if (t->shuffles && t->n_episodes > 0) {
        c->index = draw_episode(t, atomic_fetch_add(&t->next, 1));
    } else if (!take_index(t, c)) {
        return STATUS_OK;
    }
    if (t->stream != NULL) {
        if (episodes_fetch(t->stream, c->index, &c->examples, &n, &c->lease, err) != STATUS_OK)
            return err->status;
    } else {
        episode = (size_t)(c->index % t->n_episodes);
        c->examples = &t->table.examples[t->table.starts[episode]];
        n = t->table.starts[episode + 1] - t->table.starts[episode];
    }
    c->n_examples = (uint32_t)n;
    *ret_found = true;
    return STATUS_OK;
}

static void say_example(struct teacher_clone *c, const struct example *e, struct act *out)
{
    act_share(out, &e->act, out->arena);
    c->labels = e->labels;
    c->said = &e->act;
    c->is_padding = false;
}

/* Padding has the teacher's id like any act, if there is memory for it. */
static void say_padding(struct teacher_clone *c, struct act *out)
{
    const struct teacher *t = original_of(c);
    struct error err;

    act_padding(out, out->arena);
    if (act_set(out, ACT_ID, value_text((struct text){t->id, strlen(t->id)}), &err) != STATUS_OK)
        act_padding(out, out->arena);
    c->labels = (struct value){.type = VALUE_NULL};
    c->is_padding = true;
}

static enum status teacher_act(struct participant_clone *base, struct act *out, struct error *err)
{
    struct teacher_clone *c = container_of(base, struct teacher_clone, base);
    struct teacher *t = original_of(c);
    bool found = true;

    if (c->next == c->n_examples && enter_episode(t, c, &found, err) != STATUS_OK)
        return err->status;
    c->has_acted = true;
    if (!found) {
        say_padding(c, out);
        return STATUS_OK;
    }
    say_example(c, &c->examples[c->next++], out);
    if (c->next == c->n_examples)
        (void)atomic_fetch_add(&t->ended, 1);
    return STATUS_OK;
}

/* Takes the next batch: *ret_from is its place among the sorted examples. Returns its rows. */
static size_t take_batch(struct teacher *t, bool all_told, size_t *ret_from)
{
    struct batches *b = &t->batches;
    size_t n_rows = 0;
    uint64_t index;

    (void)pthread_mutex_lock(&t->lock); /* cannot fail: the lock is not destroyed while in use */
    index = atomic_load(&t->next);
    if (index == b->n && t->loops && all_told) {
        if (t->shuffles)
            batches_shuffle(b, t->config.seed, ++t->batches_epoch);
        index = 0;
    }
    if (index < b->n) {
        *ret_from = b->order[index] * b->batch_size;
        n_rows = b->n_examples - *ret_from;
        n_rows = n_rows < b->batch_size ? n_rows : b->batch_size;
        index++;
    }
    atomic_store(&t->next, index);
    (void)pthread_mutex_unlock(&t->lock);
    return n_rows;
}

static struct teacher_clone *teacher_clone_of(const struct participant_row *row)
{
    return container_of(row->clone, struct teacher_clone, base);
}

static void fail_rows(struct participant_row *rows, size_t n, const struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        rows[i].failed = true;
        rows[i].err = *err;
    }
}

static void deal_table(struct teacher *t, struct participant_row *rows, size_t n, bool all_told)
{
    size_t from = 0, n_rows = take_batch(t, all_told, &from);

    for (size_t i = 0; i < n; i++) {
        if (i < n_rows)
            say_example(teacher_clone_of(&rows[i]),
                        &t->table.examples[t->batches.examples[from + i]], rows[i].out);
        else
            say_padding(teacher_clone_of(&rows[i]), rows[i].out);
    }
}

static void deal_stream(struct teacher *t, struct participant_row *rows, size_t n, bool all_told)
{
    struct kept **batch = try_alloc(t->config.batch_size, sizeof(*batch));
    struct error err;
    size_t n_rows = 0;

    if (batch == NULL)
        (void)error_no_memory(&err, t->config.batch_size * sizeof(*batch), "a batch");
    if (batch == NULL ||
        sorted_stream_deal(t->sorted, t->loops && all_told, batch, &n_rows, &err) != STATUS_OK) {
        fail_rows(rows, n, &err);
        free(batch);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct teacher_clone *c = teacher_clone_of(&rows[i]);

        if (i < n_rows) {
            c->kept = batch[i];
            say_example(c, &c->kept->example, rows[i].out);
        } else {
            say_padding(c, rows[i].out);
        }
    }
    free(batch);
}

/* The next batch of similar length: row i is the i-th clone's; a short batch is followed by
 * padding. */
static void teacher_batch_act(struct participant *base, struct participant_row *rows, size_t n)
{
    struct teacher *t = container_of(base, struct teacher, base);
    struct error err;
    bool all_told = true;

    if (n < t->config.batch_size) {
        (void)error_set(&err, STATUS_INVALID,
                        "a batch of %zu was requested, but the teacher sorts for batches of %zu", n,
                        t->config.batch_size);
        fail_rows(rows, n, &err);
        return;
    }
    atomic_store(&t->deals, true);
    for (size_t i = 0; i < n; i++) {
        struct teacher_clone *c = teacher_clone_of(&rows[i]);

        all_told &= atomic_load(&c->was_told);
        atomic_store(&c->was_told, false);
        leave_episode(c);
        c->has_acted = true;
    }
    if (t->sorted != NULL)
        deal_stream(t, rows, n, all_told);
    else
        deal_table(t, rows, n, all_told);
}

static bool teacher_use_batch_act(const struct participant *base)
{
    const struct teacher *t = container_of(base, const struct teacher, base);

    return t->batches.batch_size > 0 || t->sorted != NULL;
}

/* --- what a clone observes
 * --------------------------------------------------------------------- */

static enum status teacher_observe(struct participant_clone *base, const struct act *reply,
                                   const struct act **ret_observation, struct error *err)
{
    struct teacher_clone *c = container_of(base, struct teacher_clone, base);
    const struct value labels = c->labels;
    struct teacher *t = original_of(c);

    *ret_observation = reply;
    if (labels.type != VALUE_LIST)
        return STATUS_OK;
    c->labels.type = VALUE_NULL; /* scored once */
    if (metrics_evaluate(t->metrics, c->shard, &labels, reply, err) != STATUS_OK)
        return err->status;
    return t->judge != NULL ? judge_add(t->judge, c->said, &labels, reply, err) : STATUS_OK;
}

static bool teacher_episode_done(const struct participant_clone *base)
{
    const struct teacher_clone *c = container_of(base, const struct teacher_clone, base);

    return c->has_acted && c->next == c->n_examples;
}

static bool teacher_epoch_done(const struct participant_clone *base)
{
    const struct teacher_clone *c = container_of(base, const struct teacher_clone, base);
    const struct teacher *t = original_of(c);
    uint64_t next = atomic_load(&t->next), limit = (c->epoch + 1) * t->n_episodes;
    bool is_done;

    if (!c->has_acted || c->next < c->n_examples)
        return false;
    if (atomic_load(&t->deals))
        is_done = t->sorted != NULL ? sorted_stream_is_over(t->sorted) : next >= t->batches.n;
    else if (t->shuffles)
        is_done = t->n_episodes == 0;
    else if (t->loops)
        is_done = next >= limit;
    else /* as in ParlAI: the clone holds one of the last batch_size episodes, and none is left */
        is_done = next >= limit && (c->is_padding || c->index + t->config.batch_size >= limit);
    /* The clone belongs to the caller; all other members are const here. A clone that is told while
     * other clones have not ended will be told again. */
    if (is_done && (atomic_load(&t->deals) || atomic_load(&t->ended) >= limit))
        atomic_store(&((struct teacher_clone *)(uintptr_t)c)->was_told, true);
    return is_done;
}

static enum status teacher_clone_init(struct participant_clone *base,
                                      const struct participant_slot *place, struct error *err)
{
    struct teacher_clone *c = container_of(base, struct teacher_clone, base);
    size_t n_shards = original_of(c)->config.n_shards;

    if (place->thread >= n_shards)
        return error_set(err, STATUS_INVALID,
                         "thread %u was requested, but the teacher was opened for %zu threads",
                         place->thread, n_shards);
    c->shard = place->thread;
    c->labels.type = VALUE_NULL;
    return STATUS_OK;
}

static void teacher_clone_deinit(struct participant_clone *base)
{
    leave_episode(container_of(base, struct teacher_clone, base));
}

static void teacher_clone_reset(struct participant_clone *base)
{
    struct teacher_clone *c = container_of(base, struct teacher_clone, base);

    leave_episode(c);
    c->labels.type = VALUE_NULL;
    c->index = c->epoch = 0;
    c->is_padding = c->has_acted = false;
    atomic_store(&c->was_told, false);
}

/* --- the original ---------------------------------------------------------------------------- */

static void teacher_reset(struct participant *base)
{
    struct teacher *t = container_of(base, struct teacher, base);

    atomic_store(&t->next, 0);
    atomic_store(&t->ended, 0);
    if (t->batches.batch_size > 0 && t->shuffles)
        batches_shuffle(&t->batches, t->config.seed, ++t->batches_epoch);
    if (t->sorted != NULL)
        sorted_stream_reset(t->sorted);
    if (t->stream != NULL)
        episodes_reset(t->stream);
    if (t->judge != NULL)
        judge_reset(t->judge);
    metrics_reset(t->metrics);
}

static enum status teacher_report(struct report *out, struct participant *base, struct error *err)
{
    struct teacher *t = container_of(base, struct teacher, base);

    if (t->judge != NULL && judge_settle(t->judge, err) != STATUS_OK)
        return err->status;
    return metrics_report(out, t->metrics, err);
}

static size_t count_examples(const struct participant *base)
{
    return container_of(base, const struct teacher, base)->n_examples;
}

static size_t count_episodes(const struct participant *base)
{
    return container_of(base, const struct teacher, base)->n_episodes;
}

static void teacher_close(struct participant *base)
{
    struct teacher *t = container_of(base, struct teacher, base);

    sorted_stream_close(t->sorted);
    episodes_close(t->stream);
    batches_close(&t->batches);
    table_close(&t->table);
    judge_close(t->judge);
    metrics_close(t->metrics);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->id);
    free(t);
}

static const struct participant_type teacher_type = {
    .name = "teacher",
    .clone_size = sizeof(struct teacher_clone),
    .close = teacher_close,
    .reset_shared = teacher_reset,
    .report = teacher_report,
    .n_examples = count_examples,
    .n_episodes = count_episodes,
    .clone_init = teacher_clone_init,
    .clone_deinit = teacher_clone_deinit,
    .reset = teacher_clone_reset,
    .observe = teacher_observe,
    .act = teacher_act,
    .batch_act = teacher_batch_act,
    .use_batch_act = teacher_use_batch_act,
    .episode_done = teacher_episode_done,
    .epoch_done = teacher_epoch_done,
};

/* The file's name without its folder and extension. */
static char *id_of(const char *path)
{
    const size_t len = plugin_file_len(path); /* for other files, the whole path */
    const char *slash = memrchr(path, '/', len), *name = slash == NULL ? path : slash + 1;
    const size_t n = len - (size_t)(name - path);
    const char *dot = memrchr(name, '.', n);

    return try_strndup(name, dot == NULL || dot == name ? n : (size_t)(dot - name));
}

static void warn(struct teacher *t, const struct text_line_oddities *oddities)
{
    if (oddities->n_returns > 0)
        (void)snprintf(t->warning, sizeof(t->warning),
                       "%zu lines end with CR and LF; the CR stays in the last field, as in "
                       "ParlAI: remove it with sed -i 's/\\r$//' FILE",
                       oddities->n_returns);
    else if (oddities->n_false > 0)
        (void)snprintf(t->warning, sizeof(t->warning),
                       "%zu lines have episode_done:False, which ParlAI reads as true",
                       oddities->n_false);
    else if (oddities->n_no_colon > 0)
        (void)snprintf(t->warning, sizeof(t->warning), "%zu fields without a colon were left out",
                       oddities->n_no_colon);
}

/* Cuts a table behind its first examples, perhaps within an episode. */
static void table_cut(struct example_table *table, size_t n_first)
{
    size_t n = 0;

    if (n_first >= table->n_examples)
        return;
    while (table->starts[n] < n_first)
        n++;
    table->starts[n] = n_first;
    table->n_episodes = n;
    table->n_examples = n_first;
}

static enum status teacher_load(struct teacher *t, const struct data_format *format,
                                const char *task, struct error *err)
{
    const char *path = task + strcspn(task, ":") + 1;
    struct text id = {t->id, strlen(t->id)};
    const struct teacher_config *config = &t->config;

    if (config->datatype.stream) {
        if (format == &attached_format && config->data_file == NULL)
            return error_set(err, STATUS_INVALID,
                             "attached:%.60s as a stream needs --datafile FILE, where it is kept: "
                             "once it is there, the teacher is not asked again",
                             path);
        if (config->batch_sort)
            return error_set(err, STATUS_INVALID,
                             "batch_sort needs all data in memory; use length_cache for a stream");
        if (episodes_open(&t->stream, task, id, config, t->loops, err) != STATUS_OK)
            return err->status;
        t->n_episodes = episodes_n_episodes(t->stream);
        t->n_examples = episodes_n_examples(t->stream);
        if (config->length_cache != LENGTH_CACHE_NONE && config->batch_size > 1)
            return sorted_stream_open(&t->sorted, t->stream, config, err);
        return STATUS_OK;
    }
    if (config->length_cache != LENGTH_CACHE_NONE)
        return error_set(err, STATUS_INVALID,
                         "length_cache works only for a stream; use batch_sort for data in memory");
    if (table_open(&t->table, format, path, id, config, err) != STATUS_OK)
        return err->status;
    if (config->n_first > 0 && !t->loops)
        table_cut(&t->table, config->n_first < SIZE_MAX ? (size_t)config->n_first : SIZE_MAX);
    t->n_episodes = t->table.n_episodes;
    t->n_examples = t->table.n_examples;
    warn(t, &t->table.oddities);
    if (config->batch_sort && config->batch_size > 1)
        return batches_open(&t->batches, &t->table, config->batch_size, config->seed, err);
    return STATUS_OK;
}

/* An attached teacher may have metrics of its own. */
static enum status teacher_find_judge(struct teacher *t, const char *source, struct error *err)
{
    static const char *const folds[] = {
        [FOLD_TRAIN] = "train", [FOLD_VALID] = "valid", [FOLD_TEST] = "test"};

    if (t->config.attached == NULL)
        return STATUS_OK;
    return judge_open(&t->judge, t->config.attached, source, folds[t->config.datatype.fold],
                      t->metrics, err);
}

enum status teacher_open(struct teacher **out, const char *task,
                         const struct teacher_config *config, struct error *err)
{
    size_t prefix = strcspn(task, ":");
    const struct data_format *format = format_named(task, prefix);
    bool is_data = prefix == 4 && memcmp(task, "data", 4) == 0;
    struct teacher *t;

    assert(config->n_shards > 0 && config->rank < config->n_ranks && config->batch_size > 0);
    if (task[prefix] != ':' || task[prefix + 1] == '\0' || (format == NULL && !is_data))
        return error_set(err, STATUS_NOT_FOUND,
                         "there is no task '%.30s' here, only parlai:, jsonl:, fbdialog: and "
                         "conversations:FILE, "
                         "plugin:FILE.so, attached:NAME, data:FILE. 'parlai "
                         "convert_data_to_parlai_format --task "
                         "%.30s --outfile FILE' makes a parlai:FILE",
                         task, task);
    t = try_alloc(1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a teacher");
    participant_init(&t->base, &teacher_type);
    (void)pthread_mutex_init(&t->lock, NULL); /* cannot fail with default attributes */
    t->config = *config;
    t->config.datatype.stream |= is_data;
    t->loops = datatype_loops(&t->config.datatype);
    t->shuffles = datatype_shuffles(&t->config.datatype);
    t->id = id_of(task + prefix + 1);
    if (t->id == NULL)
        (void)error_no_memory(err, strlen(task), "a teacher");
    else if (metrics_open(&t->metrics, config->metrics, config->n_shards, err) == STATUS_OK &&
             teacher_load(t, format, task, err) == STATUS_OK &&
             (format != &attached_format ||
              teacher_find_judge(t, task + prefix + 1, err) == STATUS_OK)) {
        *out = t;
        return STATUS_OK;
    }
    teacher_close(&t->base);
    return err->status;
}

void teacher_config_init(struct teacher_config *c)
{
    *c = (struct teacher_config){
        .datatype = {.fold = FOLD_VALID},
        .batch_size = 1,
        .n_ranks = 1,
        .metrics = METRICS_DEFAULT,
        .n_shards = 1,
        .include_labels = true,
        .context_length = -1,
        .length_range = 5,
        .n_loaders = 2,
        .max_line_bytes = TEACHER_MAX_LINE_BYTES,
    };
}

struct participant *teacher_participant(struct teacher *t)
{
    return &t->base;
}

struct teacher *teacher_of(struct participant *p)
{
    return p->type == &teacher_type ? container_of(p, struct teacher, base) : NULL;
}

size_t teacher_n_episodes(const struct teacher *t)
{
    return t->n_episodes;
}

size_t teacher_n_examples(const struct teacher *t)
{
    return t->n_examples;
}

bool teacher_shuffles(const struct teacher *t)
{
    return t->shuffles;
}

const char *teacher_id(const struct teacher *t)
{
    return t->id;
}

size_t teacher_n_skipped(const struct teacher *t)
{
    return t->stream != NULL ? episodes_n_skipped(t->stream) : t->table.n_skipped;
}

const char *teacher_warning(const struct teacher *t)
{
    return t->warning[0] == '\0' ? NULL : t->warning;
}

struct metrics *teacher_metrics(struct teacher *t)
{
    return t->metrics;
}

enum status tasks_split(struct text **out, size_t *ret_n, const char *tasks, struct arena *arena,
                        struct error *err)
{
    size_t n = 1;
    struct text *texts;

    for (const char *at = tasks; *at != '\0'; at++)
        n += *at == ',';
    texts = arena_alloc(arena, n, sizeof(*texts));
    if (texts == NULL)
        return error_no_memory(err, n * sizeof(*texts), "tasks");
    for (size_t i = 0; i < n; i++) {
        size_t len = strcspn(tasks, ",");

        if (len == 0)
            return error_set(err, STATUS_INVALID, "task %zu of the list has no name", i + 1);
        texts[i] = (struct text){arena_strndup(arena, tasks, len), len};
        if (texts[i].text == NULL)
            return error_no_memory(err, len, "tasks");
        for (size_t k = 0; k < i; k++)
            if (texts[k].len == len && memcmp(texts[k].text, tasks, len) == 0)
                return error_set(err, STATUS_INVALID, "task '%s' is in the list twice",
                                 texts[i].text);
        tasks += len + 1;
    }
    *out = texts;
    *ret_n = n;
    return STATUS_OK;
}
