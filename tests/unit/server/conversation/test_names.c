#include "server/conversation/names.h"

#include <check.h>
#include <stdio.h>

#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static struct fake_server s;
static struct conversation_names m;

static void open_all(void)
{
    fake_server_open(&s, "fake", 0, NULL);
    conversation_names_init(&m, &s.all, &s.env);
}

static void close_all(void)
{
    conversation_names_deinit(&m);
    fake_server_close(&s);
}

static void bind_name(const char *name, const struct conversation *c)
{
    struct error err;

    ck_assert_int_eq(conversation_names_bind(&m, 0, name, &c->id, &err), STATUS_OK);
}

/* A name means its last bound conversation, until that is closed; an id is a name, too. */
START_TEST(binds)
{
    char id[CONVERSATION_ID_CHARS];
    struct conversation *one, *two, *found;
    struct conversation_id what;
    struct error err;

    open_all();
    one = fake_conversation(&s);
    two = fake_conversation(&s);
    ck_assert_ptr_null(conversation_names_find(&m, 0, "tour"));
    bind_name("tour", one);
    bind_name("other", two);
    ck_assert_ptr_eq(conversation_names_find(&m, 0, "tour"), one);
    ck_assert_ptr_eq(conversation_names_find(&m, 0, "other"), two);
    bind_name("tour", two);
    ck_assert_ptr_eq(conversation_names_find(&m, 0, "tour"), two);
    conversation_id_format(&one->id, id);
    ck_assert_ptr_eq(conversation_names_find(&m, 0, id), one);
    ck_assert_int_eq(conversation_names_get(&found, &m, 0, "tour", &err), STATUS_OK);
    ck_assert_ptr_eq(found, two);
    conversation_close(two, WATCH_CLOSED, "the test wants it");
    ck_assert_ptr_null(conversation_names_find(&m, 0, "tour"));
    ck_assert_int_eq(conversation_names_get(&found, &m, 0, "tour", &err), STATUS_NOT_FOUND);
    ck_assert_str_eq(err.text, "there is no conversation 'tour'");
    ck_assert(conversation_names_resolve(&what, &m, 0, "tour")); /* a closed one, too */
    ck_assert(conversation_names_resolve(&what, &m, 0, id));
    ck_assert_int_eq(memcmp(&what, &one->id, sizeof(what)), 0);
    ck_assert(!conversation_names_resolve(&what, &m, 1, "tour"));
    ck_assert(conversation_name_is_valid("a.B_9-") && !conversation_name_is_valid("a/b"));
    close_all();
}
END_TEST

/* With too many names, the least recently used one is evicted. */
START_TEST(forgets_the_oldest)
{
    struct conversation *c;
    char name[16];

    open_all();
    c = fake_conversation(&s);
    for (int i = 0; i < CONVERSATION_NAMES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        bind_name(name, c);
    }
    ck_assert_ptr_eq(conversation_names_find(&m, 0, "n0"), c); /* used now */
    bind_name("one more", c);
    ck_assert_ptr_eq(conversation_names_find(&m, 0, "n0"), c);
    ck_assert_ptr_null(conversation_names_find(&m, 0, "n1"));
    ck_assert_ptr_eq(conversation_names_find(&m, 0, "n2"), c);
    ck_assert_ptr_eq(conversation_names_find(&m, 0, "one more"), c);
    close_all();
}
END_TEST

/* With keys a principal's names push out its own from half of them on, and its kept responses too,
 * not another's. */
START_TEST(halves)
{
    struct conversation *c, *first, *kept = NULL;
    struct error err;
    char name[16];

    open_all();
    c = fake_conversation(&s);
    ck_assert_int_eq(conversation_names_bind(&m, 2, "other", &c->id, &err), STATUS_OK);
    for (int i = 0; i <= CONVERSATION_NAMES_MAX; i++) {
        (void)snprintf(name, sizeof(name), "n%d", i);
        ck_assert_int_eq(conversation_names_bind(&m, 1, name, &c->id, &err), STATUS_OK);
    }
    ck_assert_ptr_eq(conversation_names_find(&m, 2, "other"), c);
    ck_assert_uint_eq(m.by_name.n, CONVERSATION_NAMES_MAX / 2 + 1);
    ck_assert_ptr_eq(conversation_names_find(&m, 1, name), c);
    first = fake_conversation(&s);
    conversation_names_keep(&m, 2, &c->id);
    conversation_names_keep(&m, 1, &first->id);
    for (int i = 1; i < CONVERSATION_NAMES_MAX_KEPT / 2; i++) {
        kept = fake_conversation(&s);
        conversation_names_keep(&m, 1, &kept->id);
    }
    ck_assert(!first->is_closed);
    conversation_names_keep(&m, 1, &kept->id);
    ck_assert(conversations_newest(&s.all) == kept);
    ck_assert_uint_eq(m.kept_limit.held, CONVERSATION_NAMES_MAX_KEPT / 2 + 1);
    ck_assert(!c->is_closed);
    close_all();
}
END_TEST

SUITE_MAIN("server/names", binds, forgets_the_oldest, halves)
