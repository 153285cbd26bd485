#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/json_writer.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

static enum status copy_and_grow(void *arg)
{
    enum status rc = STATUS_EXHAUSTED;
    char *text, *more;

    text = try_strndup("text", 4);
    if (text == NULL)
        return STATUS_EXHAUSTED;
    more = try_realloc(text, 100, 10);
    if (more != NULL) {
        text = more;
        rc = STATUS_OK;
    }
    ck_assert_str_eq(text, "text"); /* whether or not it has grown */
    free(text);
    return rc;
}

/* A failed copy or growth returns nothing and frees nothing. */
START_TEST(alloc_fails_clean)
{
    ck_assert_int_eq(sweep(copy_and_grow, NULL), 2);
}
END_TEST

static enum status fill_arena(void *arg)
{
    enum { N = 200 };
    static const size_t sizes[] = {1, 100, 5000, 0, 70000};
    unsigned char *pieces[N];
    size_t n_made = 0;
    struct arena a;
    enum status rc = STATUS_OK;

    arena_init(&a, SIZE_MAX);
    for (size_t i = 0; i < N; i++) {
        size_t size = sizes[i % 5];
        size_t before = a.total_bytes;

        pieces[i] = arena_alloc(&a, 1, size);
        if (pieces[i] == NULL) {
            rc = STATUS_EXHAUSTED;
            ck_assert_uint_eq(a.total_bytes, before);
            pieces[i] = arena_alloc(&a, 1, size); /* the fault is over: the arena works again */
            ck_assert_ptr_nonnull(pieces[i]);
        }
        memset(pieces[i], (int)i, size);
        n_made++;
    }
    for (size_t i = 0; i < n_made; i++) {
        for (size_t k = 0; k < sizes[i % 5]; k++) {
            if (pieces[i][k] != (unsigned char)i)
                ck_abort_msg("piece %zu is damaged", i);
        }
    }
    arena_deinit(&a);
    return rc;
}

/* A failed chunk fails its piece only: all others stay, and later ones succeed. */
START_TEST(arena_fails_clean)
{
    ck_assert_int_gt(sweep(fill_arena, NULL), 10);
}
END_TEST

/* Extends want by a successful append, or checks that a failed one added nothing. */
static void expect(const struct buf *b, char *want, const char *more, enum status rc,
                   enum status *sum)
{
    size_t len = strlen(want);

    if (rc == STATUS_OK) {
        memcpy(want + len, more, strlen(more) + 1);
        len += strlen(more);
    } else {
        ck_assert_int_eq(rc, STATUS_EXHAUSTED);
        *sum = rc;
    }
    ck_assert_uint_eq(b->len, len);
    if (b->data != NULL)
        ck_assert_str_eq(b->data, want);
    else
        ck_assert_uint_eq(len, 0);
}

static enum status fill_buf(void *arg)
{
    enum status sum = STATUS_OK;
    char want[8000] = "";
    struct buf b;

    buf_init(&b, 10000);
    for (int i = 0; i < 20; i++) {
        char number[128];

        (void)snprintf(number, sizeof(number), "%0100d", i);
        expect(&b, want, "text", buf_append_text(&b, "text"), &sum);
        expect(&b, want, number, buf_printf(&b, "%0100d", i), &sum);
    }
    buf_deinit(&b);
    return sum;
}

/* An append without memory leaves the buffer unchanged, and later ones succeed. */
START_TEST(buf_fails_clean)
{
    ck_assert_int_gt(sweep(fill_buf, NULL), 4);
}
END_TEST

static enum status json_from_empty(void *arg)
{
    static char text[300];
    struct json_writer w;
    struct buf b;
    enum status rc;

    memset(text, '\x02', sizeof(text));
    buf_init(&b, 10000);
    w = json_writer_begin(&b);
    json_begin_object(&w, NULL);
    for (int i = 0; i < 4; i++) {
        json_write_name(&w, text, sizeof(text));
        json_write_null(&w, NULL);
    }
    json_end_object(&w);
    rc = json_writer_end(&w);
    ck_assert_uint_eq(b.len, rc == STATUS_OK ? 4 * (6 * sizeof(text) + 2 + 6) + 1 : 0);
    ck_assert(b.data == NULL || strlen(b.data) == b.len);
    buf_deinit(&b);
    return rc;
}

/* JSON that fails half-way leaves no partial text. */
START_TEST(json_fails_clean)
{
    ck_assert_int_gt(sweep(json_from_empty, NULL), 4);
}
END_TEST

SUITE_MAIN("fault/base", alloc_fails_clean, arena_fails_clean, buf_fails_clean, json_fails_clean)
