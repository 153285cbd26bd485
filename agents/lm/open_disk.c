/* KV pages and snapshots on disk: what all of a process share, and the folder of a model's name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

enum { WRITE_BYTES_S = 128 << 20 };

static void read_page(void *arg, int32_t page, void *out)
{
    const struct lm *m = arg;

    transformer_read_page(m->transformer, page, out);
}

static bool read_state(void *arg, int32_t page, void *out)
{
    const struct lm *m = arg;
    const int32_t slot = m->cache.states.of_pages[page];

    if (slot >= 0)
        transformer_read_slot(m->transformer, slot, out);
    return slot >= 0;
}

/* Without names there is one principal. */
static const char *only_owner(void *arg, uint64_t salt)
{
    return salt == 0 ? "" : NULL;
}

/* All that the contents of any page or snapshot depend on, beside its principal and its tokens. */
static enum status bind_pages(struct kv_key *out, const struct lm *m,
                              const struct agent_config *config, const char *what,
                              size_t page_bytes, struct error *err)
{
    char text[240];
    struct sha256 *s;
    enum status rc = sha256_open(&s, err);

    if (rc != STATUS_OK)
        return rc;
    /* Some ropes depend on the longest context. */
    (void)snprintf(text, sizeof(text),
                   "%s 1: model %s adapter - engine %d backend %s kv %s context %zu bytes %zu",
                   what, m->file_version, (int)AGENT_ENGINE_REVISION, m->backend->type->name,
                   kv_type_name(config->options.kv_type), config->max_context, page_bytes);
    sha256_add(s, text, strlen(text));
    sha256_take(s, out->bytes);
    sha256_close(s);
    return STATUS_OK;
}

/* FOLDER/NAME or FOLDER/kv/NAME, where bytes of the name that are not [A-Za-z0-9_-], or a point
 * behind the first, are %XX. */
static char *disk_folder_of(const struct agent_options *o, const char *name)
{
    const size_t n = strlen(o->kv_disk_folder) + 3 * strlen(name) + 8;
    char *out = xalloc(n);
    size_t at =
        (size_t)snprintf(out, n, "%s/%s", o->kv_disk_folder, o->kv_disk_is_in_data ? "kv/" : "");

    for (const char *c = name; *c != '\0'; c++) {
        const bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                              (*c >= '0' && *c <= '9') || *c == '_' || *c == '-' ||
                              (*c == '.' && c != name);

        at += (size_t)snprintf(out + at, n - at, is_plain ? "%c" : "%%%02X", (unsigned char)*c);
    }
    return out;
}

/* Snapshots have half of the bytes, and files of their own. */
static enum status share_disk(struct lm_disk_config *disk, const struct lm *m,
                              const struct agent_config *config, const char *folder,
                              struct error *err)
{
    disk->states = disk->store;
    disk->states.folder = folder;
    disk->states.page_bytes = transformer_slot_bytes(m->transformer);
    disk->states.size_bytes /= 2;
    disk->store.size_bytes -= disk->states.size_bytes;
    return bind_pages(&disk->states.binding, m, config, "states", disk->states.page_bytes, err);
}

enum status lm_open_disk(struct lm *m, const struct agent_config *config, struct error *err)
{
    const struct agent_options *o = &config->options;
    struct lm_disk_config disk = {
        .store = {.size_bytes = o->kv_disk_bytes,
                  .page_bytes = transformer_image_bytes(m->transformer),
                  .write_bytes_s = WRITE_BYTES_S,
                  .wake = config->wake,
                  .arg = config->wake_arg},
        .owner = config->owner_name != NULL ? config->owner_name : only_owner,
        .owner_arg = config->owner_arg,
        .read_page = read_page,
        .read_state = read_state,
        .read_arg = m,
        .n_pages = m->cache.n_pages,
        .n_entries = m->cache.n_pages,
    };
    size_t states_room;
    char *folder, *states;
    enum status rc;

    if (o->kv_disk_bytes == 0 || m->cache.prefixes == NULL)
        return STATUS_OK;
    if (disk.store.page_bytes == 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the backend '%s' cannot keep KV pages on disk: leave out --kv-disk, or "
                         "use --backend cpu",
                         m->backend->type->name);
    if (m->cache.host_pages != NULL)
        disk.n_entries += kv_host_pages_n(m->cache.host_pages);
    folder =
        disk_folder_of(o, config->name == NULL || *config->name == '\0' ? "model" : config->name);
    states_room = strlen(folder) + sizeof("/states");
    states = xalloc(states_room);
    (void)snprintf(states, states_room, "%s/states", folder); /* it fits */
    disk.store.folder = folder;
    rc = bind_pages(&disk.store.binding, m, config, "kv pages", disk.store.page_bytes, err);
    if (rc == STATUS_OK && lm_states_are_kept(&m->cache.states))
        rc = share_disk(&disk, m, config, states, err);
    if (rc == STATUS_OK)
        rc = lm_disk_open(&m->cache.disk, &disk, err);
    free(states);
    free(folder);
    return rc == STATUS_OK ? rc : error_prefix(err, "--kv-disk");
}
