#include "worlds/teachers/index.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the index is little-endian");

enum { VERSION = 1 };

static const char magic[8] = "PARLEYIX";

static enum status write_failed(struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "writing failed: %s", strerror(errno));
}

enum status index_writer_open(struct index_writer *w, const char *path, struct error *err)
{
    *w = (struct index_writer){
        .header = {.version = VERSION, .entry_bytes = sizeof(struct data_entry)}};
    memcpy(w->header.magic, magic, sizeof(magic));
    w->out = fopen(path, "we");
    if (w->out == NULL)
        return error_set(err, STATUS_DENIED, "%s: %s", path, strerror(errno));
    if (fwrite(&(struct index_header){0}, sizeof(w->header), 1, w->out) != 1)
        return write_failed(err);
    return STATUS_OK;
}

enum status index_writer_add(struct index_writer *w, const struct data_entry *entry,
                             struct error *err)
{
    struct index_header *h = &w->header;

    if (fwrite(entry, sizeof(*entry), 1, w->out) != 1)
        return write_failed(err);
    h->entries_crc = crc32c(h->entries_crc, entry, sizeof(*entry));
    h->n_episodes++;
    h->n_examples += entry->n_examples;
    return STATUS_OK;
}

enum status index_writer_finish(struct index_writer *w, struct error *err)
{
    struct index_header *h = &w->header;

    h->crc = crc32c(0, h, offsetof(struct index_header, crc));
    if (fseek(w->out, 0, SEEK_SET) != 0 || fwrite(h, sizeof(*h), 1, w->out) != 1 ||
        fflush(w->out) != 0 || fsync(fileno(w->out)) != 0)
        return write_failed(err);
    return STATUS_OK;
}

void index_writer_close(struct index_writer *w)
{
    if (w->out != NULL)
        (void)fclose(w->out); /* finish has checked that all was written */
    w->out = NULL;
}

static enum status bad(struct error *err, const char *what)
{
    return error_set(err, STATUS_PRECONDITION, "the index is %s", what);
}

enum status index_check(struct data_index *out, const void *bytes, size_t size_bytes,
                        struct error *err)
{
    struct index_header h;
    const struct data_entry *entries;
    uint64_t end = 0, n_examples = 0;

    if (size_bytes < sizeof(h))
        return bad(err, "too short");
    memcpy(&h, bytes, sizeof(h));
    if (memcmp(h.magic, magic, sizeof(magic)) != 0)
        return bad(err, "not an index of Parley");
    if (h.crc != crc32c(0, &h, offsetof(struct index_header, crc)))
        return bad(err, "damaged");
    if (h.version != VERSION || h.entry_bytes != sizeof(*entries))
        return bad(err, "of another version");
    if (h.n_episodes != (size_bytes - sizeof(h)) / sizeof(*entries) ||
        (size_bytes - sizeof(h)) % sizeof(*entries) != 0)
        return bad(err, "cut");
    entries = (const struct data_entry *)(const void *)((const char *)bytes + sizeof(h));
    if (h.entries_crc != crc32c(0, entries, size_bytes - sizeof(h)))
        return bad(err, "damaged");
    for (uint64_t i = 0; i < h.n_episodes; i++) {
        if (entries[i].offset < end || entries[i].offset > h.data_bytes ||
            entries[i].size_bytes > h.data_bytes - entries[i].offset || entries[i].n_examples == 0)
            return bad(err, "not one of these data");
        end = entries[i].offset + entries[i].size_bytes;
        n_examples += entries[i].n_examples;
    }
    if (n_examples != h.n_examples)
        return bad(err, "not one of these data");
    *out = (struct data_index){.entries = entries,
                               .n_episodes = h.n_episodes,
                               .n_examples = h.n_examples,
                               .n_skipped = h.n_skipped,
                               .data_bytes = h.data_bytes};
    return STATUS_OK;
}
