#include "server/call/health.h"

#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/rpc/rig.h"

struct server {
    struct health health;
};

static struct server world;
static struct rig rig;
static struct dial dial;

struct change {
    const char *service;
    enum health_status status;
};

static void set(struct rig *r, void *arg)
{
    const struct change *c = arg;

    health_set(&world.health, c->service, c->status);
}

static void set_all(struct rig *r, void *arg)
{
    health_set_all(&world.health, *(enum health_status *)arg);
}

static void change(const char *service, enum health_status status)
{
    struct change c = {service, status};

    rig_on_loop(&rig, set, &c);
}

static void open_all(void)
{
    static const struct call_table *const services[] = {&health_methods};
    const struct port_config config = {
        .services = services, .n_services = 1, .server = &world, .health = &world.health};

    health_init(&world.health);
    rig_start(&rig, &config);
    ck_assert_int_eq(rig.rc, STATUS_OK);
    change("", HEALTH_SERVING);
    change("parley.v1.Models", HEALTH_NOT_SERVING);
    dial_open(&dial, rig.address);
}

static void close_all(void)
{
    dial_close(&dial);
    rig_stop(&rig);
    health_deinit(&world.health);
}

/* A request of either method: the service's name in field 1. */
static void ask(struct dialled *c, const char *path, const char *service)
{
    char bytes[64];
    size_t len = strlen(service);

    ck_assert_uint_lt(len, sizeof(bytes) - 2);
    bytes[0] = 0x0a;
    bytes[1] = (char)len;
    memcpy(bytes + 2, service, len);
    dial_start(&dial, c, path, NULL, 0);
    dial_send(&dial, c, bytes, len == 0 ? 0 : len + 2);
    dial_half_close(&dial, c);
}

static void expect_status(struct dialled *c, enum health_status status)
{
    ck_assert(dial_read(&dial, c));
    ck_assert_uint_eq(c->last_len, status == HEALTH_UNKNOWN ? 0 : 2);
    if (status != HEALTH_UNKNOWN)
        ck_assert_mem_eq(c->last, ((char[]){0x08, (char)status}), 2);
}

static struct dialled c, other;

/* Check answers for known services; an unknown one is NOT_FOUND by name. */
START_TEST(check_answers)
{
    open_all();
    ask(&c, "/grpc.health.v1.Health/Check", "");
    expect_status(&c, HEALTH_SERVING);
    dial_end(&dial, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    ask(&c, "/grpc.health.v1.Health/Check", "parley.v1.Models");
    expect_status(&c, HEALTH_NOT_SERVING);
    dial_end(&dial, &c);
    ask(&c, "/grpc.health.v1.Health/Check", "nothing");
    ck_assert(!dial_read(&dial, &c));
    dial_end(&dial, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_NOT_FOUND);
    ck_assert_str_eq(c.words, "there is no service 'nothing'");
    close_all();
}
END_TEST

/* Watch sends the current state at once and then each change, of its service only. */
START_TEST(watch_tells_changes)
{
    open_all();
    ask(&c, "/grpc.health.v1.Health/Watch", "parley.v1.Models");
    expect_status(&c, HEALTH_NOT_SERVING);
    ask(&other, "/grpc.health.v1.Health/Watch", "later");
    expect_status(&other, HEALTH_SERVICE_UNKNOWN);
    change("", HEALTH_NOT_SERVING);
    change("parley.v1.Models", HEALTH_SERVING);
    expect_status(&c, HEALTH_SERVING);
    change("later", HEALTH_SERVING);
    expect_status(&other, HEALTH_SERVING);
    rig_on_loop(&rig, set_all, &(enum health_status){HEALTH_NOT_SERVING});
    expect_status(&c, HEALTH_NOT_SERVING);
    expect_status(&other, HEALTH_NOT_SERVING);
    ck_assert_int_eq(grpc_call_cancel(c.call, NULL), GRPC_CALL_OK);
    dial_end(&dial, &c);
    rig_stop(&rig); /* with a watcher left */
    while (dial_read(&dial, &other))
        continue;
    dial_end(&dial, &other);
    ck_assert_int_eq(other.status, GRPC_STATUS_UNAVAILABLE);
    dial_close(&dial);
    health_deinit(&world.health);
}
END_TEST

SUITE_MAIN("server/health", check_answers, watch_tells_changes)
