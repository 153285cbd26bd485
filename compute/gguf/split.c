/* A model that is split into several GGUF files. The first holds all keys; each holds tensors of
 * its own, with its own offsets and alignment. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/shard_name.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/parts.h"

enum { SHARDS_MAX = 256 }; /* each is an open file */

static const char ending[] = ".gguf";

/* The number under a key of splits, which must be there. */
static enum status split_number(uint64_t *out, const struct gguf *g, const char *key,
                                struct error *err)
{
    enum status rc = gguf_get_u64(g, key, out, err);

    if (rc == STATUS_NOT_FOUND)
        return error_set(err, STATUS_DATA_LOSS, "is one of several files but has no key '%s'", key);
    if (rc != STATUS_OK)
        return error_set(err, STATUS_DATA_LOSS, "key '%s' is not a number of a file", key);
    return STATUS_OK;
}

/* How many files the model has; 1 where it is not split. */
static enum status split_count(uint64_t *out, const struct gguf *g, struct error *err)
{
    enum status rc = gguf_get_u64(g, "split.count", out, err);

    if (rc == STATUS_NOT_FOUND || (rc == STATUS_OK && *out == 0))
        *out = 1;
    if (rc != STATUS_OK && rc != STATUS_NOT_FOUND)
        return error_set(err, STATUS_DATA_LOSS, "key 'split.count' is not a number of files");
    if (*out > SHARDS_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "a model of %" PRIu64 " files (key 'split.count'), more than %d", *out,
                         SHARDS_MAX);
    return STATUS_OK;
}

enum status gguf_split_refuse(const struct gguf *g, struct error *err)
{
    uint64_t n;
    enum status rc = split_count(&n, g, err);

    if (rc == STATUS_OK && n > 1)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "one of the %" PRIu64
                         " files of a model (key 'split.count'); a file in memory must be complete",
                         n);
    return rc;
}

/* The path of the shard with this number, from 1, for the caller to free. */
static char *shard_path(const char *path, const struct shard_name *s, unsigned number)
{
    size_t room = strlen(path) + 1;
    char *other = xalloc(room);

    (void)snprintf(other, room, "%.*s-%05u-of-%05u%s", (int)s->prefix_len, path, number, s->n,
                   ending);
    return other;
}

/* Checks that g is the first file and has the name of one. */
static enum status check_first(const struct gguf *g, uint64_t n, struct shard_name *ret,
                               struct error *err)
{
    uint64_t number;
    enum status rc = split_number(&number, g, "split.no", err);

    if (rc != STATUS_OK)
        return rc;
    if (!shard_name_parse(ret, g->path, ending) || ret->n != n || ret->number != number + 1)
        return error_set(err, STATUS_DATA_LOSS,
                         "is file %" PRIu64 " of %" PRIu64 " of a model, and must be called "
                         "NAME-%05" PRIu64 "-of-%05" PRIu64 "%s for the others to be found",
                         number + 1, n, number + 1, n, ending);
    if (number != 0) {
        char *first = shard_path(g->path, ret, 1);

        (void)error_set(err, STATUS_INVALID,
                        "is file %u of %u of a model; open the first file instead, %s", ret->number,
                        ret->n, gguf_shown_path(first));
        free(first);
        return STATUS_INVALID;
    }
    return STATUS_OK;
}

/* Checks what a further file says of itself. */
static enum status check_further(const struct gguf *g, unsigned number, unsigned n,
                                 struct error *err)
{
    uint64_t has_number, has_n;
    enum status rc = split_number(&has_number, g, "split.no", err);

    if (rc == STATUS_OK)
        rc = split_number(&has_n, g, "split.count", err);
    if (rc == STATUS_OK && (has_number != number - 1 || has_n != n))
        return error_set(err, STATUS_DATA_LOSS,
                         "its keys 'split.no' and 'split.count' say file %" PRIu64 " of %" PRIu64,
                         has_number + 1, has_n);
    return rc;
}

static enum status open_further(struct gguf *g, const struct shard_name *s, unsigned number,
                                struct error *err)
{
    char *path = shard_path(g->path, s, number);
    struct gguf *further;
    enum status rc = gguf_file_read(&further, path, err);

    if (rc == STATUS_OK) {
        g->others[g->n_others++] = further;
        rc = check_further(further, number, s->n, err);
    }
    if (rc == STATUS_NOT_FOUND)
        rc =
            error_set(err, STATUS_NOT_FOUND, "missing: it must be in the folder of the first file");
    if (rc != STATUS_OK) {
        (void)error_prefix(err, "%s", gguf_shown_path(path));
        (void)error_prefix(err, "file %u of %u of the model", number, s->n);
    }
    free(path);
    return rc;
}

/* Gives g the tensors of all files. */
static enum status join_tensors(struct gguf *g, struct error *err)
{
    size_t n = g->n_tensors;
    struct gguf *own = xalloc(sizeof(*own)); /* g's own, to be joined like the others' */
    enum status rc;

    for (size_t i = 0; i < g->n_others; i++)
        n += g->others[i]->n_tensors;
    own->tensors = g->tensors;
    own->n_tensors = g->n_tensors;
    g->tensors = NULL; /* own's */
    gguf_tensors_clear(g);
    rc = gguf_tensors_reserve(g, n, err);
    if (rc == STATUS_OK)
        rc = gguf_tensors_join(g, own, err);
    for (size_t i = 0; i < g->n_others && rc == STATUS_OK; i++)
        rc = gguf_tensors_join(g, g->others[i], err);
    free(own->tensors);
    free(own);
    return rc;
}

static enum status check_total(const struct gguf *g, struct error *err)
{
    uint64_t total;
    enum status rc = split_number(&total, g, "split.tensors.count", err);

    if (rc == STATUS_OK && total != g->n_tensors)
        return error_set(
            err, STATUS_DATA_LOSS,
            "its %zu files hold %zu tensors, but key 'split.tensors.count' is %" PRIu64,
            g->n_others + 1, g->n_tensors, total);
    return rc;
}

enum status gguf_split_open(struct gguf *g, struct error *err)
{
    struct shard_name s;
    uint64_t n;
    enum status rc = split_count(&n, g, err);

    if (rc != STATUS_OK || n == 1)
        return rc;
    rc = check_first(g, n, &s, err);
    if (rc != STATUS_OK)
        return rc;
    g->others = xalloc((n - 1) * sizeof(struct gguf *));
    for (unsigned number = 2; number <= n && rc == STATUS_OK; number++)
        rc = open_further(g, &s, number, err);
    if (rc == STATUS_OK)
        rc = join_tensors(g, err);
    return rc == STATUS_OK ? check_total(g, err) : rc;
}
