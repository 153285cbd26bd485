#include "server/journal/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checksum.h"

void journal_found_init(struct journal_found *f)
{
    memset(f, 0, sizeof(*f));
    list_init(&f->events);
    list_init(&f->rows);
}

void journal_found_deinit(struct journal_found *f)
{
    struct link *at;

    while ((at = list_pop(&f->events)) != NULL)
        free(container_of(at, struct journal_event, link));
    while ((at = list_pop(&f->rows)) != NULL)
        free(container_of(at, struct journal_row, link));
    free(f->request_id);
    free(f->reading);
    journal_found_init(f);
}

enum status journal_found_add(struct journal_event **out, struct journal_found *f,
                              size_t size_bytes, struct error *err)
{
    struct journal_event *e = try_alloc(1, sizeof(*e) + size_bytes);

    if (e == NULL)
        return error_no_memory(err, sizeof(*e) + size_bytes, "an event of the journal");
    e->size_bytes = size_bytes;
    f->size_bytes += sizeof(*e) + size_bytes;
    list_push(&f->events, &e->link);
    *out = e;
    return STATUS_OK;
}

enum status journal_found_take(struct journal_found *f, const struct journal_record *r,
                               size_t max_bytes, struct error *err)
{
    struct journal_event *e = NULL;

    if (r->size_bytes + f->size_bytes > max_bytes)
        return error_because(err, STATUS_EXHAUSTED, REASON_CONVERSATION_FULL, NULL,
                             "the stored conversation has more than %zu bytes", max_bytes);
    if (journal_found_add(&e, f, r->size_bytes, err) != STATUS_OK)
        return err->status;
    memcpy(e->conversation, r->conversation, sizeof(e->conversation));
    e->kind = r->kind;
    e->generation = r->generation;
    e->turn = r->turn;
    e->unix_ms = r->unix_ms;
    if (r->size_bytes > 0)
        memcpy(e->body, r->body, r->size_bytes);
    return STATUS_OK;
}

static uint32_t journal_sum(const unsigned char *bytes, size_t size_bytes)
{
    return crc32c(0, bytes + JOURNAL_SUM_BYTES, size_bytes - JOURNAL_SUM_BYTES);
}

enum journal_place journal_place_of(uint32_t kind)
{
    if (kind == JOURNAL_KIND_SERVICE)
        return JOURNAL_PLACE_ROOMS;
    return kind >= JOURNAL_N_PLACES ? JOURNAL_PLACE_PARAMS : (enum journal_place)kind;
}

void journal_put_sum(void *bytes, size_t size_bytes)
{
    const uint32_t sum = journal_sum(bytes, size_bytes);
    unsigned char *at = bytes;

    for (size_t i = 0; i < JOURNAL_SUM_BYTES; i++)
        at[i] = (unsigned char)(sum >> 8 * i);
}

bool journal_sum_is_right(const void *bytes, size_t size_bytes)
{
    const unsigned char *at = bytes;
    uint32_t stored = 0;

    if (size_bytes < JOURNAL_SUM_BYTES)
        return false;
    for (size_t i = 0; i < JOURNAL_SUM_BYTES; i++)
        stored |= (uint32_t)at[i] << 8 * i;
    return stored == journal_sum(at, size_bytes);
}
