/* Sorts the ids of a request's results once, and goes over the turns once, so that the time does
 * not grow with their product. A result is refused if its call and an earlier result of it are
 * found. */
#include "server/conversation/tool_results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/message_extras.h"
#include "base/alloc.h"
#include "server/conversation/completed_turn.h"
#include "server/conversation/turn.h"

enum { CALLS_LOOKED_AT = 32, EXTRAS_MAX_BYTES = 64 << 20, FEW_RESULTS = 8 };

bool tool_call_may_be_of(const struct stored_request *r, const char *id, size_t len)
{
    char of_call[CALL_ID_CHARS];

    if (r->tool_use.tools.len == 0 || len != CALL_ID_CHARS - 1)
        return false;
    for (uint32_t i = 0; i < CALLS_LOOKED_AT; i++) {
        call_id_format(of_call, r->tool_use.seed, i);
        if (memcmp(of_call, id, len) == 0)
            return true;
    }
    return false;
}

/* A result of the request, by the id of its call. */
struct asked_result {
    char id[CALL_ID_CHARS - 1];
    size_t at; /* the message's place in the request */
    bool is_of_model, is_given;
};

/* Results of a request, sorted by id; of several with one id the first one. */
struct asked_results {
    struct asked_result *rows; /* [n], owned */
    size_t n;
};

/* The id of the call whose result m is; len 0: m is none, or names no call. */
static enum status result_id(struct text *out, const struct message *m, struct arena *arena)
{
    struct message_extras x;

    *out = (struct text){"", 0};
    if (m->role != ROLE_TOOL || m->more_len == 0)
        return STATUS_OK;
    if (message_extras_read(&x, m, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    *out = x.call_id;
    return STATUS_OK;
}

static int asked_compare(const void *a, const void *b)
{
    const struct asked_result *x = a, *y = b;
    const int by_id = memcmp(x->id, y->id, sizeof(x->id));

    return by_id != 0 ? by_id : (x->at > y->at) - (x->at < y->at);
}

static int asked_compare_id(const void *id, const void *row)
{
    return memcmp(id, ((const struct asked_result *)row)->id, CALL_ID_CHARS - 1);
}

static struct asked_result *asked_find(const struct asked_results *a, const char *id)
{
    return a->n == 0 ? NULL : bsearch(id, a->rows, a->n, sizeof(a->rows[0]), asked_compare_id);
}

/* Collects the results of r whose ids may be those of a model's calls. EXHAUSTED. */
static enum status asked_collect(struct asked_results *a, const struct turn_request *r)
{
    size_t n_results = 0, n = 0;

    for (size_t i = 0; i < r->n_messages; i++)
        n_results += r->messages[i].role == ROLE_TOOL;
    if (n_results == 0)
        return STATUS_OK;
    a->rows = try_alloc(n_results, sizeof(a->rows[0]));
    if (a->rows == NULL)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < r->n_messages; i++) {
        struct arena arena;
        struct text id;
        enum status rc;

        arena_init(&arena, EXTRAS_MAX_BYTES);
        rc = result_id(&id, &r->messages[i], &arena);
        if (rc == STATUS_OK && id.len == sizeof(a->rows[0].id)) {
            memcpy(a->rows[a->n].id, id.text, id.len);
            a->rows[a->n++].at = i;
        }
        arena_deinit(&arena);
        if (rc != STATUS_OK)
            return rc;
    }
    if (a->n > 0)
        qsort(a->rows, a->n, sizeof(a->rows[0]), asked_compare);
    for (size_t i = 0; i < a->n; i++)
        if (i == 0 || memcmp(a->rows[i].id, a->rows[n - 1].id, sizeof(a->rows[i].id)) != 0)
            a->rows[n++] = a->rows[i];
    a->n = n;
    return STATUS_OK;
}

/* Leaves only the results of calls that the model made in a complete turn. */
static void asked_keep_calls(struct asked_results *a, const struct turn_host *host)
{
    char id[CALL_ID_CHARS];
    size_t n_found = 0, n = 0;

    for (const struct completed_turn *t = host->newest; t != NULL && n_found < a->n; t = t->before)
        for (uint32_t i = 0; i < CALLS_LOOKED_AT && t->request->tool_use.tools.len > 0; i++) {
            struct asked_result *row;

            call_id_format(id, t->request->tool_use.seed, i);
            row = asked_find(a, id);
            if (row != NULL && !row->is_of_model) {
                row->is_of_model = true;
                n_found++;
            }
        }
    for (size_t i = 0; i < a->n; i++)
        if (a->rows[i].is_of_model)
            a->rows[n++] = a->rows[i];
    a->n = n;
}

/* Whether m may have one of the results: with few of them, most messages need not be read. */
static bool asked_may_have(const struct asked_results *a, const struct message *m)
{
    if (m->role != ROLE_TOOL || a->n > FEW_RESULTS)
        return m->role == ROLE_TOOL;
    for (size_t i = 0; i < a->n; i++)
        if (m->more_len > 0 &&
            memmem(m->more, m->more_len, a->rows[i].id, sizeof(a->rows[i].id)) != NULL)
            return true;
    return false;
}

/* Marks the results that a request has given. EXHAUSTED. */
static enum status asked_mark_given(struct asked_results *a, const struct stored_request *r)
{
    enum status rc = STATUS_OK;

    for (uint32_t i = 0; i < r->n_messages && rc == STATUS_OK; i++) {
        struct asked_result *row;
        struct arena arena;
        struct text id;

        if (!asked_may_have(a, &r->messages[i]))
            continue;
        arena_init(&arena, EXTRAS_MAX_BYTES);
        rc = result_id(&id, &r->messages[i], &arena);
        row = rc == STATUS_OK && id.len == CALL_ID_CHARS - 1 ? asked_find(a, id.text) : NULL;
        if (row != NULL)
            row->is_given = true;
        arena_deinit(&arena);
    }
    return rc;
}

static enum status asked_mark_all_given(struct asked_results *a, const struct turn_host *host)
{
    enum status rc = STATUS_OK;

    for (struct link *at = list_first(&host->turns); at != NULL && rc == STATUS_OK;
         at = list_next(&host->turns, at))
        rc = asked_mark_given(a, turn_request_of(container_of(at, struct turn, link)));
    for (const struct completed_turn *t = host->newest; t != NULL && rc == STATUS_OK; t = t->before)
        rc = asked_mark_given(a, t->request);
    return rc;
}

static enum status asked_refuse(const struct asked_results *a, struct error *err)
{
    const struct asked_result *first = NULL;
    char field[sizeof(err->field)];

    for (size_t i = 0; i < a->n; i++) {
        const struct asked_result *row = &a->rows[i];

        if (row->is_given && (first == NULL || row->at < first->at))
            first = row;
    }
    if (first == NULL)
        return STATUS_OK;
    (void)snprintf(field, sizeof(field), "messages[%zu].tool_call_id", first->at);
    return error_because(err, STATUS_EXISTS, REASON_TURN_BODY_DIFFERS, field,
                         "the call '%.*s' has its result from an earlier turn: each call gets one",
                         CALL_ID_CHARS - 1, first->id);
}

enum status tool_results_check(const struct turn_host *host, const struct turn_request *r,
                               struct error *err)
{
    struct asked_results a = {0};
    enum status rc = asked_collect(&a, r);

    if (rc == STATUS_OK)
        asked_keep_calls(&a, host);
    if (rc == STATUS_OK && a.n > 0)
        rc = asked_mark_all_given(&a, host);
    rc = rc == STATUS_OK ? asked_refuse(&a, err) : error_no_memory(err, 0, "a message");
    free(a.rows);
    return rc;
}
