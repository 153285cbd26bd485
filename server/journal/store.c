#include "server/journal/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

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
