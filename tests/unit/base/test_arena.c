#include "base/arena.h"

#include <limits.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"

static int is_all(const unsigned char *bytes, size_t n, size_t want)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != want)
            return 0;
    }
    return 1;
}

/* Pieces of any size are aligned for any type, zeroed, and apart from each other. */
START_TEST(pieces_are_aligned_zeroed_apart)
{
    enum { N = 300 };
    unsigned char *pieces[N];
    struct arena a;

    arena_init(&a, SIZE_MAX);
    for (size_t i = 0; i < N; i++) {
        pieces[i] = arena_alloc(&a, i, 7);
        ck_assert_ptr_nonnull(pieces[i]);
        ck_assert_uint_eq((uintptr_t)pieces[i] % alignof(max_align_t), 0);
        ck_assert(is_all(pieces[i], i * 7, 0));
        memset(pieces[i], (int)(i % 251), i * 7);
    }
    for (size_t i = 0; i < N; i++)
        ck_assert(is_all(pieces[i], i * 7, i % 251));
    arena_deinit(&a);
}
END_TEST

/* Past its limit an allocation fails and changes nothing: a smaller one that fits succeeds. */
START_TEST(limit_holds)
{
    struct arena a;
    size_t before;

    arena_init(&a, 1000);
    ck_assert_ptr_nonnull(arena_alloc(&a, 1, 600));
    before = a.total_bytes;
    ck_assert_ptr_null(arena_alloc(&a, 1, 600));
    ck_assert_ptr_null(arena_strndup(&a, "", SIZE_MAX));
    ck_assert_uint_eq(a.total_bytes, before);
    ck_assert_ptr_nonnull(arena_alloc(&a, 1, 300));
    ck_assert_uint_le(a.total_bytes, 1000);
    while (arena_alloc(&a, 1, 1) != NULL)
        ck_assert_uint_le(a.total_bytes, 1000);
    ck_assert_uint_gt(a.total_bytes, 1000 - alignof(max_align_t));
    arena_deinit(&a);
}
END_TEST

/* In an arena of limit 0 every allocation fails, and none is made. */
START_TEST(limit_zero)
{
    struct arena a;

    arena_init(&a, 0);
    ck_assert_ptr_null(arena_alloc(&a, 0, 0));
    ck_assert_ptr_null(arena_alloc(&a, 1, 1));
    ck_assert_ptr_null(a.chunks);
    arena_deinit(&a);
}
END_TEST

/* A size that overflows, or that rounding would wrap, fails. */
START_TEST(overflow_fails)
{
    struct arena a;

    arena_init(&a, SIZE_MAX);
    ck_assert_ptr_null(arena_alloc(&a, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(arena_alloc(&a, 1, SIZE_MAX));
    ck_assert_ptr_null(arena_alloc(&a, 1, SIZE_MAX - 14));
    ck_assert_ptr_null(arena_alloc(&a, 1, PTRDIFF_MAX));
    ck_assert_uint_eq(a.total_bytes, 0);
    arena_deinit(&a);
}
END_TEST

/* The number of calls of the system's allocator for n pieces. */
static long count_chunks(struct arena *a, size_t n, size_t size_bytes)
{
    long n_chunks;

    fault_after = LONG_MAX;
    for (size_t i = 0; i < n; i++)
        ck_assert_ptr_nonnull(arena_alloc(a, 1, size_bytes));
    n_chunks = LONG_MAX - fault_after;
    fault_after = -1;
    return n_chunks;
}

/* A small turn costs one chunk of at most 1 KiB, a large one few chunks. */
START_TEST(chunks_double)
{
    struct arena a;

    arena_init(&a, SIZE_MAX);
    ck_assert_int_eq(count_chunks(&a, 0, 1), 0);
    ck_assert_int_eq(count_chunks(&a, 30, 32), 1);
    ck_assert_uint_le(a.size, 1024);
    ck_assert_int_eq(count_chunks(&a, 60, 32), 1);
    ck_assert_uint_le(a.size, 2048);
    ck_assert_int_le(count_chunks(&a, (1 << 20) / 32, 32), 12);
    ck_assert_uint_le(a.size, 1 << 18);
    arena_deinit(&a);
}
END_TEST

/* A piece larger than any chunk does not waste the rest of the newest. */
START_TEST(large_piece_keeps_the_rest)
{
    struct arena a;
    char *first, *second;
    char *large;

    arena_init(&a, SIZE_MAX);
    first = arena_alloc(&a, 1, 16);
    large = arena_alloc(&a, 1, 1 << 20);
    second = arena_alloc(&a, 1, 16);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(large);
    memset(large, 1, 1 << 20);
    ck_assert_ptr_eq(second, first + 16);
    ck_assert_int_eq(*first + *second, 0);
    arena_deinit(&a);
}
END_TEST

/* The first piece may be a large one. */
START_TEST(large_piece_first)
{
    struct arena a;
    char *large, *small;

    arena_init(&a, SIZE_MAX);
    large = arena_alloc(&a, 1 << 10, 1 << 10);
    ck_assert_ptr_nonnull(large);
    memset(large, 1, 1 << 20);
    small = arena_alloc(&a, 1, 1);
    ck_assert_ptr_nonnull(small);
    ck_assert_int_eq(*small, 0);
    arena_deinit(&a);
}
END_TEST

/* After arena_deinit the arena is empty, keeps its limit, and can be used again. */
START_TEST(deinit_starts_anew)
{
    struct arena a;

    arena_init(&a, 100);
    for (int round = 0; round < 3; round++) {
        char *copy = arena_strndup(&a, "abc\0def", 5);

        ck_assert_ptr_nonnull(copy);
        ck_assert_mem_eq(copy, "abc\0d", 6);
        ck_assert_ptr_null(arena_alloc(&a, 1, 97));
        arena_deinit(&a);
        ck_assert_ptr_null(a.chunks);
        ck_assert_uint_eq(a.total_bytes, 0);
        ck_assert_uint_eq(a.limit_bytes, 100);
    }
    arena_deinit(&a);
    arena_deinit(NULL);
}
END_TEST

SUITE_MAIN("arena", pieces_are_aligned_zeroed_apart, limit_holds, limit_zero, overflow_fails,
           chunks_double, large_piece_keeps_the_rest, large_piece_first, deinit_starts_anew)
