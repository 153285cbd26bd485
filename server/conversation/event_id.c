#include "server/conversation/event_id.h"

#include <stdbool.h>

#include "base/number.h"

/* The rest of the text. */
struct event_id_text {
    const char *at, *end;
};

static bool event_id_skip(struct event_id_text *t, char c)
{
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

/* A decimal number without sign or leading zeros. */
static bool event_id_number(struct event_id_text *t, uint64_t most, uint64_t *out)
{
    const char *start = t->at;

    t->at += number_take(out, start, (size_t)(t->end - start), most);
    return t->at == start + 1 || (t->at > start && *start != '0');
}

enum status event_id_parse(struct event_id *out, const char *text, size_t len, struct error *err)
{
    struct event_id_text t = {.at = text, .end = text + len};
    uint64_t generation = 0, turn = 0;
    struct event_id id = {0};
    bool is_good = event_id_number(&t, UINT32_MAX, &generation) && event_id_skip(&t, '.') &&
                   event_id_number(&t, UINT32_MAX, &turn);

    do {
        is_good = is_good && event_id_skip(&t, id.n_indexes == 0 ? '.' : ',') &&
                  id.n_indexes < EVENT_ID_MAX_INDEXES &&
                  event_id_number(&t, UINT64_MAX, &id.indexes[id.n_indexes]);
        id.n_indexes += is_good;
    } while (is_good && t.at < t.end);
    if (!is_good)
        return error_field(err, "Last-Event-ID", "'%.*s' is no id of an event",
                           (int)(len < 60 ? len : 60), text);
    id.generation = (uint32_t)generation;
    id.turn = (uint32_t)turn;
    *out = id;
    return STATUS_OK;
}
