#include "server/model/budget.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/shard_name.h"

enum { PATH_SIZE = 4096, RETRY_MS = 1000 };

static const struct model_entry *entry_of(const struct link *l)
{
    return container_of(l, const struct model_entry, link);
}

static uint64_t file_bytes(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static uint64_t shard_bytes(const char *path, const struct shard_name *s)
{
    char other[PATH_SIZE];
    uint64_t n = 0;

    for (unsigned number = 1; number <= s->n; number++) {
        (void)snprintf(other, sizeof(other), "%.*s-%05u-of-%05u.gguf", (int)s->prefix_len, path,
                       number, s->n);
        n += file_bytes(other);
    }
    return n;
}

/* The weights of a folder. */
static uint64_t folder_bytes(const char *path)
{
    static const char ending[] = ".safetensors";
    char other[PATH_SIZE];
    const struct dirent *file;
    uint64_t n = 0;
    DIR *dir = opendir(path);

    while (dir != NULL && (file = readdir(dir)) != NULL) {
        size_t len = strlen(file->d_name);

        if (len < sizeof(ending) || strcmp(file->d_name + len - sizeof(ending) + 1, ending) != 0)
            continue;
        if ((size_t)snprintf(other, sizeof(other), "%s/%s", path, file->d_name) < sizeof(other))
            n += file_bytes(other);
    }
    if (dir != NULL)
        (void)closedir(dir); /* only read */
    return n;
}

static uint64_t weights_bytes(const char *path)
{
    struct shard_name shard;
    struct stat st;

    if (shard_name_parse(&shard, path, ".gguf"))
        return shard_bytes(path, &shard);
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? folder_bytes(path) : file_bytes(path);
}

uint64_t budget_of(const struct models *r, const struct model_entry *e)
{
    if (e->path == NULL || e->type != NULL) /* a plug-in says nothing of its memory */
        return 0;
    return e->bytes != 0 ? e->bytes : weights_bytes(e->path) + r->config.model.options.kv_bytes;
}

uint64_t budget_used(const struct models *r)
{
    uint64_t n = 0;

    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l))
        if (entry_of(l)->state != MODEL_ENTRY_UNLOADED)
            n += budget_of(r, entry_of(l));
    return n;
}

/* What will be free when the models that unload are gone. */
static uint64_t budget_leaving(const struct models *r)
{
    uint64_t n = 0;

    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l))
        if (entry_of(l)->state == MODEL_ENTRY_UNLOADING)
            n += budget_of(r, entry_of(l));
    return n;
}

static bool is_victim(struct model_entry *const *chosen, size_t n, const struct model_entry *e)
{
    for (size_t i = 0; i < n; i++)
        if (chosen[i] == e)
            return true;
    return false;
}

static uint64_t used_us(const struct model_entry *e)
{
    uint64_t last_us = e->model->statistics.last_us;

    return last_us > e->used_us ? last_us : e->used_us;
}

/* The least recently used one that may go and is not chosen yet; NULL: none. */
static struct model_entry *next_victim(struct model_entry *const *chosen, size_t n,
                                       const struct models *r, const struct model_entry *keep,
                                       budget_may_go_fn may_go)
{
    struct model_entry *found = NULL;

    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct model_entry *e = container_of(l, struct model_entry, link);

        if (e != keep && e->state == MODEL_ENTRY_READY && e->bytes > 0 &&
            !is_victim(chosen, n, e) && may_go(r, e) &&
            (found == NULL || used_us(e) < used_us(found)))
            found = e;
    }
    return found;
}

static enum status no_room(const struct models *r, const struct model_entry *keep, uint64_t n_bytes,
                           uint64_t used, struct error *err)
{
    if (n_bytes > r->config.memory_bytes)
        return error_because(err, STATUS_PRECONDITION, REASON_LIMIT_REACHED, NULL,
                             "model '%s' takes %" PRIu64 " MiB of weights and pages, --memory is "
                             "%" PRIu64 " MiB",
                             keep->name, n_bytes >> 20, r->config.memory_bytes >> 20);
    (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                        "model '%s' takes %" PRIu64 " MiB; models in use take %" PRIu64
                        " MiB of the %" PRIu64 " of --memory",
                        keep->name, n_bytes >> 20, used >> 20, r->config.memory_bytes >> 20);
    err->retry_after_ms = RETRY_MS;
    return err->status;
}

enum status budget_make_room(struct model_entry *out[MODELS_MAX_LOADED], size_t *ret_n,
                             const struct models *r, const struct model_entry *keep,
                             uint64_t n_bytes, budget_may_go_fn may_go, struct error *err)
{
    uint64_t used = budget_used(r) - budget_leaving(r);
    size_t n = 0;

    if (keep->state != MODEL_ENTRY_UNLOADED)
        used -= budget_of(r, keep); /* n_bytes is its own */
    while (r->config.memory_bytes != 0 && used + n_bytes > r->config.memory_bytes) {
        struct model_entry *e = next_victim(out, n, r, keep, may_go);

        if (e == NULL)
            return no_room(r, keep, n_bytes, used, err);
        used -= budget_of(r, e);
        out[n++] = e;
    }
    *ret_n = n;
    return STATUS_OK;
}
