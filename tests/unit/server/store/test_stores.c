#include "server/store/stores.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "server/access/access.h"
#include "tests/unit/base/suite.h"

static const struct principal ann = {.id = 1, .name = "ann"}, bob = {.id = 2, .name = "bob"},
                              eve = {.id = 3, .name = "eve"};
static struct stores all;
static struct error err;

static struct store_key *first_key(void)
{
    struct store_key *k;

    stores_init(&all, &stores_keeper, NULL, 1 << 20);
    ck_assert_int_eq(stores_get(&k, &all, &ann, "a", &err), STATUS_OK);
    return k;
}

static bool push(struct store_key *k, int64_t version, const int64_t *prev, size_t size_bytes)
{
    struct store_value *v;
    bool is_accepted;

    ck_assert_int_eq(store_value_make(&v, &all, 0, true, version, size_bytes, "t", &err),
                     STATUS_OK);
    ck_assert_int_eq(store_key_push(k, v, prev, &is_accepted, &err), STATUS_OK);
    if (!is_accepted)
        store_value_unref(v);
    return is_accepted;
}

static const int64_t *at(int64_t version)
{
    static int64_t v;

    v = version;
    return &v;
}

/* A version is taken behind the newest alone; the first of a key always; the one before it stays.
 */
START_TEST(orders)
{
    struct store_key *k = first_key();

    ck_assert_ptr_null(store_key_newest(k));
    ck_assert(push(k, 1, at(7), 1));
    ck_assert(!push(k, 2, at(0), 1));
    ck_assert(!push(k, 2, NULL, 1));
    ck_assert(push(k, 2, at(1), 1));
    ck_assert(!push(k, 1, at(2), 1));
    ck_assert(push(k, -1, at(2), 1));
    ck_assert_int_eq(store_key_newest(k)->version, -1);
    ck_assert_ptr_nonnull(store_key_version(k, 2));
    ck_assert_ptr_null(store_key_version(k, 1));
    ck_assert_uint_eq(k->n_versions, 2);
    stores_deinit(&all);
}
END_TEST

/* What is forgotten leaves room once nobody sends it; what is too much is refused and named. */
START_TEST(holds_bytes)
{
    const uint64_t history = 0, max_bytes = 5000, wrong = STORE_MAX_HISTORY + 1;
    struct store_key *k = first_key();
    struct store_value *sent, *v;
    bool is_accepted;

    ck_assert(push(k, 1, NULL, 600000));
    sent = store_value_ref(store_key_newest(k));
    ck_assert_int_eq(store_value_make(&v, &all, 0, true, 2, 600000, "", &err), STATUS_EXHAUSTED);
    ck_assert_str_eq(err.field, "size_bytes");
    ck_assert_int_eq(store_value_make(&v, &all, 0, true, 2, 2 << 20, "", &err), STATUS_RANGE);
    ck_assert_int_eq(store_value_make(&v, &all, 0, true, 2, SIZE_MAX, "", &err), STATUS_RANGE);
    ck_assert_int_eq(store_key_configure(k, &(struct store_settings){.history = &wrong}, &err),
                     STATUS_INVALID);
    ck_assert_int_eq(
        store_key_configure(
            k, &(struct store_settings){.history = &history, .max_bytes = &max_bytes}, &err),
        STATUS_OK);
    ck_assert(push(k, 2, at(1), 100));
    ck_assert_int_eq(store_value_make(&v, &all, 0, true, 3, 600000, "", &err), STATUS_EXHAUSTED);
    ck_assert_uint_eq(sent->size_bytes, 600000);
    store_value_unref(sent);
    ck_assert_int_eq(store_value_make(&v, &all, 0, true, 3, 600000, "", &err), STATUS_OK);
    ck_assert_int_eq(store_key_push(k, v, at(2), &is_accepted, &err), STATUS_RANGE);
    ck_assert_str_eq(err.field, "size_bytes");
    store_value_unref(v);
    ck_assert_int_eq(store_key_newest(k)->version, 2);
    stores_deinit(&all);
}
END_TEST

/* Others find a shared key by its owner's name, and do what they may. */
START_TEST(shares)
{
    const char *const readers[] = {"bob"};
    const struct access_sharing sharing = {.readers = readers, .n_readers = 1};
    struct store_key *k = first_key(), *found;
    char name[SHARED_NAME_PATH_SIZE];

    ck_assert_int_eq(stores_find(&found, &all, &bob, ACCESS_READ, "ann/a", &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(store_key_configure(k, &(struct store_settings){.sharing = &sharing}, &err),
                     STATUS_OK);
    ck_assert_int_eq(stores_find(&found, &all, &bob, ACCESS_READ, "ann/a", &err), STATUS_OK);
    ck_assert_ptr_eq(found, k);
    ck_assert_int_eq(stores_find(&found, &all, &bob, ACCESS_WRITE, "ann/a", &err), STATUS_DENIED);
    ck_assert_int_eq(stores_find(&found, &all, &eve, ACCESS_READ, "ann/a", &err), STATUS_NOT_FOUND);
    ck_assert_int_eq(stores_find(&found, &all, &bob, ACCESS_READ, "a", &err), STATUS_NOT_FOUND);
    shared_name_path(name, &k->name, &bob);
    ck_assert_str_eq(name, "ann/a");
    ck_assert(shared_name_is_listed(&k->name, &bob) && !shared_name_is_listed(&k->name, &eve));
    stores_deinit(&all);
}
END_TEST

struct watcher {
    struct store_subscriber subscriber;
    int n_pushed, n_closed;
};

static void on_pushed(struct store_subscriber *u)
{
    container_of(u, struct watcher, subscriber)->n_pushed++;
}

static void on_closing(struct store_subscriber *u, const struct error *why)
{
    ck_assert_int_eq(why->status, STATUS_NOT_FOUND);
    container_of(u, struct watcher, subscriber)->n_closed++;
}

/* Who subscribes is told of what is taken, and once of the end. */
START_TEST(tells)
{
    struct watcher w = {.subscriber = {.pushed = on_pushed, .closing = on_closing}};
    const struct error why = {.status = STATUS_NOT_FOUND};
    struct store_key *k = first_key();

    store_key_subscribe(k, &w.subscriber);
    ck_assert(push(k, 1, NULL, 1));
    ck_assert(!push(k, 2, NULL, 1));
    ck_assert_int_eq(w.n_pushed, 1);
    store_key_delete(k, &why);
    store_key_unsubscribe(&w.subscriber);
    ck_assert_int_eq(w.n_closed, 1);
    ck_assert_uint_eq(all.keys.by_name.n, 0);
    ck_assert_uint_eq(all.bytes.held, 0);
    stores_deinit(&all);
}
END_TEST

/* Keys have names of a bounded length. */
START_TEST(names)
{
    char name[SHARED_NAME_MAX_BYTES + 2] = "";
    struct store_key *k = first_key();

    ck_assert_int_eq(stores_get(&k, &all, &ann, "", &err), STATUS_INVALID);
    memset(name, 'k', sizeof(name) - 1);
    ck_assert_int_eq(stores_get(&k, &all, &ann, name, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "key");
    name[SHARED_NAME_MAX_BYTES] = '\0';
    ck_assert_int_eq(stores_get(&k, &all, &ann, name, &err), STATUS_OK);
    stores_deinit(&all);
}
END_TEST

/* A principal has at most half of the bytes and keys, whoever writes them; what a restart finds
 * stays. */
START_TEST(halves)
{
    struct store_key *k = first_key();
    struct store_value *mine, *more;
    char name[16];

    ck_assert_int_eq(store_value_make(&mine, &all, ann.id, true, 1, 1 << 19, "", &err),
                     STATUS_RANGE);
    ck_assert_int_eq(store_value_make(&mine, &all, ann.id, true, 1, 500000, "", &err), STATUS_OK);
    ck_assert_int_eq(store_value_make(&more, &all, ann.id, true, 2, 300000, "", &err),
                     STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "the principal's half of"));
    ck_assert_ptr_nonnull(strstr(err.text, "--store-bytes"));
    ck_assert_int_eq(store_value_make(&more, &all, bob.id, true, 2, 300000, "", &err), STATUS_OK);
    store_value_unref(more);
    ck_assert_int_eq(store_value_make(&more, &all, ann.id, false, 2, 300000, "", &err), STATUS_OK);
    store_value_unref(more);
    store_value_unref(mine);
    for (int i = 1; i < STORE_MAX_KEYS / 2; i++) {
        (void)snprintf(name, sizeof(name), "k%d", i);
        ck_assert_int_eq(stores_get(&k, &all, &ann, name, &err), STATUS_OK);
    }
    ck_assert_int_eq(stores_get(&k, &all, &ann, "more", &err), STATUS_EXHAUSTED);
    ck_assert_str_eq(err.field, "key");
    ck_assert_int_eq(stores_get(&k, &all, &ann, "k1", &err), STATUS_OK);
    ck_assert_int_eq(stores_add(&k, &all, &ann, "kept", false, &err), STATUS_OK);
    ck_assert_int_eq(stores_get(&k, &all, &bob, "more", &err), STATUS_OK);
    stores_deinit(&all);
}
END_TEST

SUITE_MAIN("server/store", orders, holds_bytes, shares, tells, names, halves)
