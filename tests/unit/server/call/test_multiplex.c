/* A stream of many items, with fake ones: "keep N" begins an item with the tag N that waits; "free
 * N" begins none, and has that one answer N; another text is answered by itself. */
#include "server/call/multiplex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "tests/unit/server/rpc/rig.h"

enum { MAX_KEPT = 1024 };

struct kept_item {
    struct multiplex_item base;
    char text[32];
};

static size_t n_ended; /* the loop's */

static void kept_begin(struct multiplex_item *base, const ProtobufCMessage *m, struct arena *arena)
{
    const char *text = ((const Parley__V1__Message *)m)->text;
    uint64_t tag = strtoull(text + strcspn(text, " "), NULL, 10);
    struct kept_item *item = container_of(base, struct kept_item, base);
    struct multiplex_item *found = multiplex_find(base, tag);

    if (strncmp(text, "keep ", 5) == 0 && found == NULL) {
        (void)snprintf(item->text, sizeof(item->text), "%llu", (unsigned long long)tag);
        multiplex_tag(base, tag);
    } else if (strncmp(text, "free ", 5) == 0) {
        if (found != NULL)
            multiplex_notify(found);
        multiplex_leave(base);
    } else {
        (void)snprintf(item->text, sizeof(item->text), "%.20s", text);
        multiplex_notify(base);
    }
}

static enum multiplex_written kept_write(struct multiplex_item *base)
{
    struct kept_item *item = container_of(base, struct kept_item, base);
    Parley__V1__Message m = PARLEY__V1__MESSAGE__INIT;

    m.text = item->text;
    multiplex_write(base, &m.base, false);
    return WROTE_LAST;
}

static void kept_end(struct multiplex_item *base, enum status why)
{
    n_ended++;
}

static void start_kept(struct call *call)
{
    static const struct multiplex_type type = {
        .item_size = sizeof(struct kept_item),
        .max_items = MAX_KEPT,
        .item_name = "an item",
        .begin = kept_begin,
        .write = kept_write,
        .end = kept_end,
    };

    multiplex_start(call, &type);
}

static const struct call_method rows[] = {
    {"/test.Multiplex/Keep", CALL_BIDI, &parley__v1__message__descriptor,
     &parley__v1__message__descriptor, start_kept, ACCESS_KEY},
};
static const struct call_table table = {rows, 1};
static const struct call_table *const services[] = {&table};
static const struct port_config config = {.services = services, .n_services = 1};

static struct rig rig;
static struct dial d;
static struct dialled c; /* large */

static void open_stream(void)
{
    n_ended = 0;
    rig_start(&rig, &config);
    ck_assert_int_eq(rig.rc, STATUS_OK);
    dial_open(&d, rig.address);
    dial_start(&d, &c, "/test.Multiplex/Keep", NULL, 60000);
}

static void send_tag(const char *what, uint64_t tag)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%s %llu", what, (unsigned long long)tag);
    dial_send_text(&d, &c, text);
}

static void expect(const char *text)
{
    ck_assert(dial_read(&d, &c));
    ck_assert_str_eq(c.reply, text);
}

static void expect_end(void)
{
    dial_half_close(&d, &c);
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    dial_close(&d);
    rig_stop(&rig);
}

/* An item is found by its tag until it ends; then the tag is free. */
START_TEST(tags)
{
    open_stream();
    send_tag("keep", 5);
    send_tag("keep", 6);
    send_tag("keep", 5);
    expect("keep 5"); /* in use: an item of its own, without tag */
    send_tag("free", 6);
    expect("6");
    send_tag("keep", 6);
    send_tag("free", 5);
    expect("5");
    send_tag("free", 6);
    expect("6");
    expect_end();
}
END_TEST

/* Messages that begin no item leave nothing, are no end of the stream, and do not fill it. */
START_TEST(leaves)
{
    open_stream();
    for (uint64_t i = 0; i < MAX_KEPT + 10; i++)
        send_tag("free", i);
    dial_send_text(&d, &c, "still there");
    expect("still there");
    expect_end();
    ck_assert_uint_eq(n_ended, MAX_KEPT + 11);
}
END_TEST

/* As many items as a stream may have, with tags that are far from each other, end with it. */
START_TEST(full)
{
    open_stream();
    for (uint64_t i = 1; i < MAX_KEPT; i++)
        send_tag("keep", i << 40);
    send_tag("free", (uint64_t)77 << 40);
    expect("84662395338752");
    for (uint64_t i = 1; i < MAX_KEPT; i++)
        send_tag("free", i << 40);
    for (uint64_t i = 2; i < MAX_KEPT; i++)
        ck_assert(dial_read(&d, &c));
    expect_end();
}
END_TEST

SUITE_MAIN("server/multiplex", tags, leaves, full)
