#include "tests/support/memory_store.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/journal/body_bytes.h"

struct memory_store store;
static char large[256 << 10];

static enum status memory_open(struct journal_store **out, const char *dir, struct error *err)
{
    *out = &store.base;
    return STATUS_OK;
}

static void memory_close(struct journal_store *s)
{
}

static void memory_put(const struct journal_record *of)
{
    size_t i = 0;

    if (of->kind == JOURNAL_CLOSE) {
        store.n_closed++;
        return;
    }
    while (i < store.n && strcmp(store.kept[i].name, of->name) != 0)
        i++;
    if (i < store.n) {
        store.n--;
        memmove(&store.kept[i], &store.kept[i + 1], (store.n - i) * sizeof(store.kept[0]));
    }
    if (of->kind == JOURNAL_FORGET)
        return;
    ck_assert_uint_lt(store.n, KEPT_MAX);
    ck_assert_uint_le(of->size_bytes, KEPT_BODY_MAX);
    (void)snprintf(store.kept[store.n].name, KEPT_NAME_MAX, "%s", of->name);
    memcpy(store.kept[store.n].body, of->body, of->size_bytes);
    store.kept[store.n].is_large = false;
    store.kept[store.n++].size_bytes = of->size_bytes;
}

static enum status memory_commit(struct journal_store *s,
                                 const struct journal_record *const *records, size_t n,
                                 struct error *err)
{
    if (store.is_full)
        return error_set(err, STATUS_UNAVAILABLE, "the disk is full");
    for (size_t i = 0; i < n && !store.is_dead; i++)
        memory_put(records[i]);
    return STATUS_OK;
}

static enum status memory_read(struct journal_store *s, const struct journal_query *q,
                               size_t max_bytes, struct journal_found *out, struct error *err)
{
    out->is_elsewhere = store.is_elsewhere;
    if (store.is_elsewhere || store.is_failing)
        return error_set(err, STATUS_UNAVAILABLE, "not here, or not now");
    if (q->by == JOURNAL_BY_ID)
        return store.n_by_id++ < store.n_failing ? error_set(err, STATUS_UNAVAILABLE, "not now")
                                                 : STATUS_OK;
    for (size_t i = 0; i < store.n; i++) {
        struct journal_event *e;

        if (journal_found_add(&e, out, store.kept[i].size_bytes, err) != STATUS_OK)
            return err->status;
        memcpy(e->body, store.kept[i].is_large ? large : store.kept[i].body,
               store.kept[i].size_bytes);
    }
    return STATUS_OK;
}

const struct journal_store_type memory_type = {.name = "memory",
                                               .open = memory_open,
                                               .close = memory_close,
                                               .commit = memory_commit,
                                               .read = memory_read};

struct journal *memory_store_open(uv_loop_t *loop, size_t max_waiting_bytes)
{
    const struct journal_config config = {
        .dir = "/nowhere", .type = &memory_type, .max_waiting_bytes = max_waiting_bytes};
    struct journal *j;
    struct error err;

    store.base.type = &memory_type;
    ck_assert_int_eq(uv_loop_init(loop), 0);
    ck_assert_int_eq(journal_open(&j, loop, &config, &err), STATUS_OK);
    return j;
}

void memory_store_enlarge(char kind, const char *text, size_t n_bytes)
{
    struct kept *k = &store.kept[store.n];
    const char *at, *end;
    struct body_writer w = {0};
    struct buf body;
    char *longer;

    do {
        ck_assert_ptr_ne(k, store.kept);
        k--;
        at = memmem(k->body, k->size_bytes, text, strlen(text));
    } while (k->name[0] != kind || at == NULL);
    end = at + strlen(text);
    longer = malloc(n_bytes + 1);
    memset(longer, 'x', n_bytes);
    longer[n_bytes] = '\0';
    buf_init(&body, sizeof(large));
    w.out = &body;
    ck_assert_int_eq(buf_append(&body, k->body, (size_t)(at - k->body) - sizeof(uint64_t)),
                     STATUS_OK);
    body_put_text(&w, longer); /* with its length */
    ck_assert(!w.has_failed);
    ck_assert_int_eq(buf_append(&body, end, (size_t)(k->body + k->size_bytes - end)), STATUS_OK);
    journal_put_sum(body.data, body.len);
    memcpy(large, body.data, body.len);
    k->size_bytes = body.len;
    k->is_large = true;
    buf_deinit(&body);
    free(longer);
}

static bool settled, is_stopped;

static void on_settled(void *arg, const struct error *err)
{
    settled = true;
}

void memory_store_settle(struct journal *j, uv_loop_t *loop)
{
    struct journal_wait w = {NULL};

    settled = false;
    journal_settle(j, &w, on_settled, NULL);
    while (!settled)
        (void)uv_run(loop, UV_RUN_ONCE);
}

static void on_stopped(void *arg)
{
    is_stopped = true;
}

void memory_store_close(struct journal *j, uv_loop_t *loop)
{
    is_stopped = false;
    journal_stop(j, on_stopped, NULL);
    ck_assert_int_eq(uv_run(loop, UV_RUN_DEFAULT), 0);
    ck_assert(is_stopped);
    ck_assert_int_eq(uv_loop_close(loop), 0);
}
