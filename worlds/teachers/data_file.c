/* Builds data files and their indices, and checks an index before it is used. A build goes through
 * the source once: each episode is squashed and preprocessed in memory, written, and entered into
 * the index; the header is written last. */
#include "worlds/teachers/data_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/example.h"
#include "worlds/teachers/format.h"
#include "worlds/teachers/index.h"

/* "name" and suffix joined; NULL without memory. */
static char *data_file_joined(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    char *out = try_alloc(n + m + 1, 1);

    if (out != NULL) {
        memcpy(out, name, n);
        memcpy(out + n, suffix, m);
    }
    return out;
}

static const char *source_of(const char *task)
{
    return task + strcspn(task, ":") + 1;
}

static bool is_plugin(const char *task)
{
    return strncmp(task, "plugin:", 7) == 0;
}

static bool is_attached(const char *task)
{
    return strncmp(task, "attached:", 9) == 0;
}

/* The file that the data come from; of a plug-in its object, whose argument is not a part of it.
 * NULL without memory. */
static char *source_file(const char *task)
{
    const char *source = source_of(task);

    return try_strndup(source, is_plugin(task) ? plugin_file_len(source) : strlen(source));
}

/* Of attached data, which have no file, all zero. */
static enum status source_stat(const char *task, struct stat *st, struct error *err)
{
    enum status rc = STATUS_OK;
    char *path;

    *st = (struct stat){0};
    if (is_attached(task))
        return STATUS_OK;
    path = source_file(task);
    if (path == NULL)
        return error_no_memory(err, strlen(task), "a path");
    if (stat(path, st) != 0)
        rc = error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DENIED, "%s: %s", path,
                       strerror(errno));
    free(path);
    return rc;
}

static bool is_data(const char *task)
{
    return strncmp(task, "data:", 5) == 0;
}

/* Whether a task's lines are read unchanged: only an index is built. */
static bool is_in_place(const char *task, const char *data_path,
                        const struct teacher_config *config, bool preprocesses)
{
    bool is_jsonl = strncmp(task, "jsonl:", 6) == 0 || is_data(task);

    return is_jsonl && !config->squash && !preprocesses && strcmp(source_of(task), data_path) == 0;
}

/* A checksum of the options that the data depend on. */
static uint32_t options_crc(const char *task, const struct teacher_config *config)
{
    const char *format = task == NULL || is_data(task) ? "" : task;
    char text[160];
    int n = snprintf(text, sizeof(text), "%.*s squash %d labels %d context %lld seed %llu skip %d",
                     (int)strcspn(format, ":"), format, config->squash,
                     config->squash && config->include_labels,
                     config->squash ? (long long)config->context_length : 0,
                     config->squash ? (unsigned long long)config->seed : 0, config->skip_bad);
    uint32_t crc = crc32c(0, text, (size_t)n);
    uint8_t fold = (uint8_t)config->datatype.fold;

    /* The data of a plug-in and of an attached teacher depend on the argument and the fold. */
    if (!is_plugin(task) && !is_attached(task))
        return crc;
    return crc32c(crc32c(crc, task, strlen(task)), &fold, 1);
}

static int64_t changed_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* --- building -------------------------------------------------------------------------------- */

/* The state of one call of data_build. */
struct building {
    const struct teacher_config *config;
    struct arena arena; /* memory of the current episode */
    struct source source;
    FILE *out; /* the data file; NULL: the source is the data file, and only an index is built */
    struct index_writer index;
    struct buf text;                 /* the current episode's lines */
    uint64_t offset;                 /* where the current episode begins in the data file */
    uint64_t n_episodes, n_read;     /* episodes written; episodes of the source */
    bool needs_labels;               /* a line without labels is bad (only an index is built) */
    struct participant_clone *clone; /* the clone that preprocesses; NULL: none does */
    const char *vectors_of;          /* the clone's digest */
};

static uint32_t longest(const struct act *turns, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t words = count_words(act_text(&turns[i]));

        most = words > most ? words : most;
    }
    return most;
}

/* The model's observation of the act. The model self-observes the first label as its answer. */
static enum status preprocess(struct building *b, struct act *turn, struct error *err)
{
    const struct value *labels = act_labels(turn);
    const struct act *seen;
    struct act reply;

    if (participant_observe(b->clone, turn, &seen, err) != STATUS_OK)
        return err->status;
    act_init(&reply, &b->arena);
    if (act_set(&reply, ACT_EPISODE_DONE, value_bool(act_is(turn, ACT_EPISODE_DONE)), err) !=
            STATUS_OK ||
        (labels != NULL && labels->list.n > 0 &&
         act_set(&reply, ACT_TEXT, value_text(labels->list.items[0]), err) != STATUS_OK) ||
        act_copy(turn, seen, &b->arena, err) != STATUS_OK ||
        act_remove(turn, "full_text", 9, NULL, err) != STATUS_OK ||
        act_remove(turn, "full_text_vec", 13, NULL, err) != STATUS_OK ||
        act_force_named(turn, (struct text){"vectors_of", 10},
                        value_text((struct text){b->vectors_of, strlen(b->vectors_of)}),
                        err) != STATUS_OK)
        return err->status;
    return participant_self_observe(b->clone, &reply, err);
}

static enum status add_entry(struct building *b, size_t n, uint32_t n_words, struct error *err)
{
    struct data_entry e = {.offset = b->offset,
                           .size_bytes = (uint32_t)b->text.len,
                           .crc = crc32c(0, b->text.data, b->text.len),
                           .n_examples = (uint32_t)n,
                           .n_words = n_words};

    if (b->text.len > UINT32_MAX)
        return error_set(err, STATUS_EXHAUSTED, "an episode of more than 4 GiB");
    if (b->out != NULL && fwrite(b->text.data, 1, b->text.len, b->out) != b->text.len)
        return error_set(err, STATUS_DATA_LOSS, "writing failed: %s", strerror(errno));
    b->offset += b->text.len;
    b->n_episodes++;
    buf_clear(&b->text);
    return index_writer_add(&b->index, &e, err);
}

static enum status write_turn(struct building *b, struct act *turn, bool is_last, struct error *err)
{
    if (act_force(turn, ACT_EPISODE_DONE, value_bool(is_last), err) != STATUS_OK ||
        (b->clone != NULL && preprocess(b, turn, err) != STATUS_OK) ||
        act_to_json(turn, &b->text, err) != STATUS_OK)
        return err->status;
    if (buf_append(&b->text, "\n", 1) != STATUS_OK)
        return error_no_memory(err, b->text.len, "an episode");
    return STATUS_OK;
}

static enum status data_file_take(void *to, struct act *turns, size_t n, struct error *err)
{
    struct building *b = to;
    bool squashes = b->config->squash; /* if so, each turn becomes an episode */
    size_t from = 0;

    if (squashes && squash(turns, n, b->config, b->n_read, &b->arena, err) != STATUS_OK)
        return err->status;
    b->n_read++;
    for (size_t i = 0; i < n; i++) {
        bool is_last = squashes || i + 1 == n;

        if (write_turn(b, &turns[i], is_last, err) != STATUS_OK)
            return err->status;
        if (!is_last)
            continue;
        if (add_entry(b, i + 1 - from, longest(&turns[from], i + 1 - from), err) != STATUS_OK)
            return err->status;
        from = i + 1;
    }
    return STATUS_OK;
}

static enum status build_data(struct building *b, const char *task, struct error *err)
{
    size_t prefix = strcspn(task, ":");

    b->source = (struct source){.format = format_named(task, prefix),
                                .arena = &b->arena,
                                .recycles = true,
                                .take = data_file_take,
                                .to = b,
                                .skip_bad = b->config->skip_bad,
                                .fold = b->config->datatype.fold,
                                .attached = b->config->attached};
    if (b->source.format == NULL)
        return error_set(err, STATUS_NOT_FOUND, "a data file cannot be built from the task '%.80s'",
                         task);
    if (source_read(&b->source, source_of(task), b->config->max_line_bytes, err) != STATUS_OK)
        return err->status;
    b->index.header.source_bytes = b->source.lines.n_bytes;
    b->index.header.source_crc = b->source.lines.crc;
    b->index.header.n_skipped = b->source.n_skipped;
    return STATUS_OK;
}

/* --- an index alone -------------------------------------------------------------------------- */

static bool data_file_is_blank(const char *line, size_t len)
{
    while (len > 0 && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        len--;
    return len == 0;
}

/* The effect of a line on the current episode. */
struct look {
    bool is_example, ends;
    uint32_t n_words;
};

static enum status look_at(struct building *b, const char *line, size_t len, struct look *out,
                           struct error *err)
{
    struct act a;

    *out = (struct look){0};
    arena_deinit(&b->arena);
    if (data_file_is_blank(line, len))
        return STATUS_OK;
    if (act_from_json(&a, line, len, &b->arena, err) != STATUS_OK ||
        source_check(&a, &b->arena, b->needs_labels, err) != STATUS_OK)
        return err->status;
    out->is_example = true;
    out->ends = !act_has(&a, ACT_EPISODE_DONE) || act_is(&a, ACT_EPISODE_DONE);
    out->n_words = count_words(act_text(&a));
    return STATUS_OK;
}

/* Adds the line to the current episode: also a blank or bad line within it. */
static enum status extend(struct data_entry *e, const struct lines *l, const char *line, size_t len,
                          const struct look *look, struct error *err)
{
    if (e->n_examples == 0)
        *e = (struct data_entry){.offset = l->start};
    if (l->stop - e->offset > UINT32_MAX)
        return error_set(err, STATUS_EXHAUSTED, "an episode of more than 4 GiB");
    e->size_bytes = (uint32_t)(l->stop - e->offset);
    e->crc = crc32c(e->crc, line, len);
    if (l->stop - l->start > len)
        e->crc = crc32c(e->crc, "\n", 1);
    e->n_examples += look->is_example;
    e->n_words = look->n_words > e->n_words ? look->n_words : e->n_words;
    return STATUS_OK;
}

static enum status index_line(struct building *b, struct data_entry *e, const struct lines *l,
                              const char *line, size_t len, struct error *err)
{
    struct look look;

    if (look_at(b, line, len, &look, err) != STATUS_OK) {
        if (err->status != STATUS_INVALID || !b->config->skip_bad)
            return err->status;
        b->index.header.n_skipped++;
    }
    if (e->n_examples == 0 && !look.is_example)
        return STATUS_OK;
    if (extend(e, l, line, len, &look, err) != STATUS_OK)
        return err->status;
    if (look.ends) {
        if (index_writer_add(&b->index, e, err) != STATUS_OK)
            return err->status;
        b->n_episodes++;
        *e = (struct data_entry){0};
    }
    return STATUS_OK;
}

/* A line that is too long to read cannot be skipped here: an episode's checksum covers all of its
 * bytes. */
static enum status build_index(struct building *b, const char *path, struct error *err)
{
    struct data_entry e = {0};
    struct lines l;
    const char *line;
    size_t len;
    enum status rc = lines_open(&l, path, b->config->max_line_bytes, err);

    if (rc != STATUS_OK)
        return rc;
    for (;;) {
        rc = lines_next(&l, &line, &len, err);
        if (rc != STATUS_OK || line == NULL)
            break;
        rc = index_line(b, &e, &l, line, len, err);
        if (rc != STATUS_OK)
            break;
    }
    if (rc == STATUS_OK && e.n_examples > 0) { /* the last episode is not closed */
        rc = index_writer_add(&b->index, &e, err);
        b->n_episodes++;
    }
    if (rc != STATUS_OK)
        rc = error_prefix(err, "%s:%zu", path, l.number);
    b->index.header.source_bytes = b->offset = l.n_bytes;
    b->index.header.source_crc = l.crc;
    lines_close(&l);
    return rc;
}

/* --- both ------------------------------------------------------------------------------------ */

static enum status start_preprocess(struct building *b, struct participant *p, struct error *err)
{
    if (p == NULL)
        return STATUS_OK;
    if (p->type->vectors_of == NULL)
        return error_set(err, STATUS_INVALID,
                         "%s cannot use preprocessed vectors: leave out --preprocess",
                         p->type->name);
    b->vectors_of = p->type->vectors_of(p);
    b->index.header.is_preprocessed = 1;
    b->clone = try_alloc(1, participant_clone_size(p));
    if (b->clone == NULL)
        return error_no_memory(err, participant_clone_size(p), "a clone");
    return participant_clone_init(b->clone, p, &(struct participant_slot){0, 0}, err);
}

static enum status data_file_build(struct building *b, const char *task, const char *data_part,
                                   struct error *err)
{
    struct stat st;

    if (source_stat(task, &st, err) != STATUS_OK)
        return err->status;
    if (data_part != NULL) {
        b->out = fopen(data_part, "we");
        if (b->out == NULL)
            return error_set(err, STATUS_DENIED, "%s: %s; data_file can name another place",
                             data_part, strerror(errno));
    }
    if ((data_part != NULL ? build_data(b, task, err) : build_index(b, source_of(task), err)) !=
        STATUS_OK)
        return err->status;
    if (b->n_episodes == 0)
        return error_set(err, STATUS_INVALID, "%s: no examples", source_of(task));
    if (b->out != NULL && (fflush(b->out) != 0 || fsync(fileno(b->out)) != 0))
        return error_set(err, STATUS_DATA_LOSS, "%s: %s", data_part, strerror(errno));
    b->index.header.source_ns = changed_ns(&st);
    if (is_plugin(task))
        b->index.header.source_bytes = (uint64_t)st.st_size;
    b->index.header.options_crc = options_crc(task, b->config);
    b->index.header.data_bytes = b->offset;
    return index_writer_finish(&b->index, err);
}

static enum status put_in_place(const char *part, const char *path, struct error *err)
{
    return rename(part, path) == 0 ? STATUS_OK
                                   : error_set(err, STATUS_DENIED, "%s: %s", path, strerror(errno));
}

enum status data_build(const char *task, const char *data_path, const struct teacher_config *config,
                       struct participant *preprocess_by, struct error *err)
{
    bool in_place = is_in_place(task, data_path, config, preprocess_by != NULL);
    struct building b = {
        .config = config, .text = {.limit_bytes = SIZE_MAX / 2}, .needs_labels = !is_data(task)};
    char *index_path = data_file_joined(data_path, ".index"),
         *index_part = data_file_joined(data_path, ".index.part");
    char *data_part = in_place ? NULL : data_file_joined(data_path, ".part");
    enum status rc;

    arena_init(&b.arena, SIZE_MAX);
    if (index_path == NULL || index_part == NULL || (!in_place && data_part == NULL)) {
        rc = error_no_memory(err, strlen(data_path), "a path");
        goto out;
    }
    rc = index_writer_open(&b.index, index_part, err);
    if (rc == STATUS_OK)
        rc = start_preprocess(&b, preprocess_by, err);
    if (rc == STATUS_OK)
        rc = data_file_build(&b, task, data_part, err);
    if (rc == STATUS_OK && data_part != NULL)
        rc = put_in_place(data_part, data_path, err);
    if (rc == STATUS_OK)
        rc = put_in_place(index_part, index_path, err);
out:
    if (b.clone != NULL)
        participant_clone_deinit(b.clone);
    free(b.clone);
    if (b.out != NULL)
        (void)fclose(b.out); /* build has checked that all was written */
    index_writer_close(&b.index);
    if (rc != STATUS_OK && data_part != NULL)
        (void)unlink(data_part); /* the file may not exist */
    if (rc != STATUS_OK && index_part != NULL)
        (void)unlink(index_part);
    buf_deinit(&b.text);
    arena_deinit(&b.arena);
    free(index_path);
    free(index_part);
    free(data_part);
    return rc;
}

/* --- reading --------------------------------------------------------------------------------- */

static enum status unusable(struct error *err, const char *what)
{
    return error_set(err, STATUS_PRECONDITION, "the index is %s", what);
}

static enum status map_index(struct data_index *out, const char *path, struct error *err)
{
    struct data_index x = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = MAP_FAILED;

    if (fd < 0)
        return unusable(err, "not there");
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd); /* the mapping stays valid */
    if (map == MAP_FAILED)
        return unusable(err, "not readable");
    if (index_check(&x, map, (size_t)st.st_size, err) != STATUS_OK) {
        (void)munmap(map, (size_t)st.st_size);
        return err->status;
    }
    x.map = map;
    x.map_bytes = (size_t)st.st_size;
    *out = x;
    return STATUS_OK;
}

static enum status source_crc(const char *path, size_t max_line_bytes, uint32_t *out,
                              struct error *err)
{
    struct lines l;
    const char *line = "";
    size_t len;
    enum status rc = lines_open(&l, path, max_line_bytes, err);

    if (rc != STATUS_OK)
        return rc;
    while (rc == STATUS_OK && line != NULL) {
        rc = lines_next(&l, &line, &len, err);
        rc = rc == STATUS_INVALID ? STATUS_OK : rc; /* a long line: its bytes are counted too */
    }
    *out = l.crc;
    lines_close(&l);
    return rc;
}

/* Whether the source is what the index was built from: by size and time, or else by its bytes. */
static enum status check_source(const struct data_index *x, const char *task,
                                const struct teacher_config *config, struct error *err)
{
    const struct index_header *h = x->map;
    struct stat st;
    uint32_t crc;
    enum status rc;

    if (h->options_crc != options_crc(task, config))
        return unusable(err, "built with other options");
    rc = source_stat(task, &st, err);
    if (rc == STATUS_EXHAUSTED)
        return rc;
    if (rc != STATUS_OK || (uint64_t)st.st_size != h->source_bytes)
        return unusable(err, "built from another source");
    if (changed_ns(&st) == h->source_ns)
        return STATUS_OK;
    if (is_plugin(task))
        return unusable(err, "built with another build of the plug-in");
    if (source_crc(source_of(task), config->max_line_bytes, &crc, err) != STATUS_OK)
        return err->status;
    return crc == h->source_crc ? STATUS_OK : unusable(err, "built from another source");
}

enum status data_index_open(struct data_index *out, const char *data_path, const char *task,
                            const struct teacher_config *config, struct error *err)
{
    char *path = data_file_joined(data_path, ".index");
    struct data_index x = {0};
    struct stat st;
    enum status rc;

    if (path == NULL)
        return error_no_memory(err, strlen(data_path), "a path");
    rc = map_index(&x, path, err);
    free(path);
    if (rc == STATUS_OK && (stat(data_path, &st) != 0 || (uint64_t)st.st_size != x.data_bytes))
        rc = unusable(err, "built from other data");
    if (rc == STATUS_OK && task != NULL)
        rc = check_source(&x, task, config, err);
    if (rc == STATUS_OK)
        *out = x;
    else
        data_index_close(&x);
    return rc;
}

void data_index_close(struct data_index *x)
{
    if (x->map != NULL)
        (void)munmap(x->map, x->map_bytes);
    *x = (struct data_index){0};
}

enum status data_path_of(char **out, const char *task, const struct teacher_config *config,
                         struct error *err)
{
    bool stays = is_data(task) || (strncmp(task, "jsonl:", 6) == 0 && !config->squash);
    bool is_given = config->data_file != NULL && !is_data(task);
    char *file = is_given ? NULL : source_file(task), *path = NULL;

    if (is_given)
        path = data_file_joined(config->data_file, "");
    else if (file != NULL)
        path = data_file_joined(file, stays ? "" : ".stream");
    free(file);
    if (path == NULL)
        return error_no_memory(err, strlen(task), "a path");
    *out = path;
    return STATUS_OK;
}

/* Whether there is a sound index of data that an agent preprocessed. */
static bool data_is_preprocessed(const char *data_path)
{
    struct data_index x;
    struct error err;
    bool is;

    if (data_index_open(&x, data_path, NULL, NULL, &err) != STATUS_OK)
        return false;
    is = ((const struct index_header *)x.map)->is_preprocessed != 0;
    data_index_close(&x);
    return is;
}

enum status data_ready(struct data_index *out, const char *data_path, const char *task,
                       const struct teacher_config *config, struct error *err)
{
    enum status rc;

    if (is_data(task) && config->squash)
        return error_set(
            err, STATUS_INVALID,
            "data:FILE cannot be squashed here: squash the data when the file is built");
    /* built data are what they are, however; JSON lines that lie there are their own source */
    rc = data_index_open(out, data_path, is_data(task) ? NULL : task, config, err);
    if (rc != STATUS_PRECONDITION)
        return rc;
    if (data_is_preprocessed(data_path))
        return error_set(err, STATUS_PRECONDITION,
                         "%s was preprocessed from a source that has changed since, or with other "
                         "options: build it again with build-data",
                         data_path);
    if (data_build(task, data_path, config, NULL, err) != STATUS_OK)
        return err->status;
    return data_index_open(out, data_path, is_data(task) ? NULL : task, config, err);
}
