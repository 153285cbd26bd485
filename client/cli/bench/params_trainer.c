#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/output/console.h"
#include "client/cli/bench/params_bench.h"

float params_gradient_number(size_t k, size_t i)
{
    uint64_t x = (k * 100000007 + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 32;
    return (float)((double)(x & 0xffffff) / 0x800000 - 1.0);
}

static void print_round(size_t round, uint64_t begin_ns, const uint8_t sha256[32])
{
    char hex[65];

    for (size_t i = 0; i < 32; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", sha256[i]);
    printf("round %zu %llu %llu %s\n", round, (unsigned long long)begin_ns,
           (unsigned long long)clock_ns(), hex);
    (void)fflush(stdout); /* if the reader is gone, this process is ended anyway */
}

static enum exit_code trainer(const struct params_role *role)
{
    struct parley_channel *channel = parley_channel_open(role->address);
    struct parley_trainer *updates = channel == NULL ? NULL : parley_trainer_open(channel);
    float *gradient = try_alloc(role->n, sizeof(float)),
          *values = try_alloc(role->n, sizeof(float));
    enum parley_status rc = PARLEY_RESOURCE_EXHAUSTED;
    struct parley_gradient g = {.params = "bench", .values = gradient, .n = role->n};
    struct parley_version version = {0};
    struct parley_error err = {.text = "out of memory for a trainer"};
    char id[16];

    (void)snprintf(id, sizeof(id), "trainer-%03zu", role->index);
    g.client_id = id;
    if (updates == NULL || gradient == NULL || values == NULL)
        goto out;
    for (size_t i = 0; i < role->n; i++)
        gradient[i] = params_gradient_number(role->index, i);
    rc = PARLEY_OK;
    for (size_t round = 0; round < role->n_rounds && rc == PARLEY_OK; round++) {
        uint64_t begin_ns = clock_ns();

        g.step_id = round + 1;
        g.base_version = version.version;
        rc = parley_update_and_fetch(updates, &g, values, &version, NULL, NULL, &err);
        if (rc == PARLEY_OK)
            print_round(round, begin_ns, version.sha256);
    }
out:
    if (rc != PARLEY_OK)
        console_error("trainer %zu: %s", role->index, err.text);
    parley_trainer_close(updates);
    if (channel != NULL)
        parley_channel_close(channel);
    free(gradient);
    free(values);
    return rc == PARLEY_OK ? EXIT_DONE : EXIT_FAILED;
}

bool params_role_run(int argc, char **argv, enum exit_code *ret_code)
{
    static const struct {
        const char *name;
        enum exit_code (*run)(const struct params_role *role);
    } roles[] = {
        {"as-trainer", trainer},
        {"as-floor-server", params_floor_server},
        {"as-floor-client", params_floor_client},
    };
    struct params_role role;

    if (argc != 6)
        return false;
    role = (struct params_role){
        .address = argv[2],
        .index = strtoul(argv[3], NULL, 10),
        .n = strtoul(argv[4], NULL, 10),
        .n_rounds = strtoul(argv[5], NULL, 10),
    };
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        if (strcmp(argv[1], roles[i].name) == 0) {
            *ret_code = roles[i].run(&role);
            return true;
        }
    }
    return false;
}
