#include "compute/verbs/placement.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct placement_problem problem;
static struct placement found;
static struct error err;

static const double MB = 1 << 20;

static void set_up(uint32_t n_models, uint32_t n_devices, double model_bytes, double device_bytes)
{
    memset(&problem, 0, sizeof(problem));
    problem.n_models = n_models;
    problem.n_devices = n_devices;
    problem.connection_weight = problem.load_weight = 1;
    for (uint32_t i = 0; i < n_models; i++) {
        problem.models[i].bytes = model_bytes;
        problem.models[i].complexity = 1;
    }
    for (uint32_t d = 0; d < n_devices; d++) {
        problem.devices[d].bytes = device_bytes;
        problem.devices[d].speed = 1;
        for (uint32_t e = 0; e < n_devices; e++)
            problem.distance[d][e] = d != e;
    }
}

static void connect(uint32_t a, uint32_t b, double weight)
{
    problem.traffic[a][b] = problem.traffic[b][a] = weight;
}

static void find(void)
{
    ck_assert_msg(placement_find(&found, &problem, 1000000, &err) == STATUS_OK, "%s", err.text);
    ck_assert(found.is_exact);
}

/* The four cases of Machin's own test. */
START_TEST(machin)
{
    set_up(2, 2, 10 * MB, 700 * MB);
    connect(0, 1, 1);
    problem.load_weight = 10;
    find();
    ck_assert_uint_ne(found.device[0], found.device[1]);

    problem.connection_weight = 10;
    problem.load_weight = 1;
    find();
    ck_assert_uint_eq(found.device[0], found.device[1]);

    set_up(2, 2, 600 * MB, 700 * MB);
    connect(0, 1, 1);
    problem.connection_weight = 10;
    find();
    ck_assert_uint_ne(found.device[0], found.device[1]);

    set_up(2, 2, 800 * MB, 700 * MB);
    ck_assert(placement_find(&found, &problem, 1000000, &err) == STATUS_EXHAUSTED);
    ck_assert(strstr(err.text, "do not fit") != NULL);
}
END_TEST

/* Where the original divides 0 by 0: one device, no connection, no speed, no complexity. */
START_TEST(nothing_to_divide)
{
    set_up(3, 1, 1, 3);
    for (uint32_t i = 0; i < 3; i++)
        problem.models[i].complexity = 0;
    problem.devices[0].speed = 0;
    find();
    ck_assert(found.cost == 0 && found.connection_cost == 0 && found.load_cost == 0);

    set_up(4, 2, 1, 4);
    problem.devices[0].speed = problem.devices[1].speed = 0;
    find();
    ck_assert(found.load_cost == 0);
}
END_TEST

static double cost_of(const uint32_t *device)
{
    double traffic = 0, furthest = 0, total = 0, speed = 0, work = 0, cost = 0;

    for (uint32_t i = 0; i < problem.n_models; i++) {
        work += problem.models[i].complexity;
        for (uint32_t k = 0; k < i; k++) {
            total += problem.traffic[i][k];
            traffic += problem.traffic[i][k] * problem.distance[device[i]][device[k]];
        }
    }
    for (uint32_t d = 0; d < problem.n_devices; d++) {
        speed += problem.devices[d].speed;
        for (uint32_t e = 0; e < d; e++)
            furthest = fmax(furthest, problem.distance[d][e]);
    }
    for (uint32_t d = 0; d < problem.n_devices; d++) {
        double load = 0, bytes = 0;

        for (uint32_t i = 0; i < problem.n_models; i++)
            if (device[i] == d) {
                load += problem.models[i].complexity / work;
                bytes += problem.models[i].bytes;
            }
        if (bytes > problem.devices[d].bytes)
            return INFINITY;
        cost += problem.load_weight * pow(load - problem.devices[d].speed / speed, 2);
    }
    if (total > 0 && furthest > 0)
        cost += problem.connection_weight * traffic / (total * furthest);
    return cost;
}

/* Of all placements, by counting through them. */
static double least_of_all(void)
{
    uint32_t device[PLACEMENT_MODELS_MAX] = {0}, i;
    double least = INFINITY;

    do {
        least = fmin(least, cost_of(device));
        for (i = 0; i < problem.n_models && ++device[i] == problem.n_devices; i++)
            device[i] = 0;
    } while (i < problem.n_models);
    return least;
}

START_TEST(as_by_counting)
{
    uint32_t n_without_room = 0;

    srandom(1);
    for (int round = 0; round < 300; round++) {
        double least;

        set_up(1 + (uint32_t)random() % 6, 1 + (uint32_t)random() % 4, 1, 1);
        problem.connection_weight = (double)(random() % 4);
        problem.load_weight = (double)(random() % 4);
        for (uint32_t i = 0; i < problem.n_models; i++) {
            problem.models[i].bytes = (double)(1 + random() % 9);
            problem.models[i].complexity = (double)(1 + random() % 9);
            for (uint32_t k = 0; k < i; k++)
                connect(i, k, (double)(random() % 3 == 0 ? random() % 9 : 0));
        }
        for (uint32_t d = 0; d < problem.n_devices; d++) {
            problem.devices[d].bytes = (double)(5 + random() % 20);
            problem.devices[d].speed = (double)(1 + random() % 3);
            for (uint32_t e = 0; e < d; e++)
                problem.distance[d][e] = problem.distance[e][d] = (double)(1 + random() % 3);
        }
        least = least_of_all();
        if (isinf(least)) {
            ck_assert(placement_find(&found, &problem, 1000000, &err) == STATUS_EXHAUSTED);
            n_without_room++;
            continue;
        }
        find();
        ck_assert_double_eq_tol(found.cost, least, 1e-9);
        ck_assert_double_eq_tol(found.cost, cost_of(found.device), 1e-9);
    }
    ck_assert_uint_gt(n_without_room, 10);
    ck_assert_uint_lt(n_without_room, 200);
}
END_TEST

/* A bound that ends the search is told. */
START_TEST(bounded)
{
    set_up(40, 8, 1, 40);
    for (uint32_t i = 0; i < 40; i++) {
        problem.models[i].complexity = 1 + i * 7 % 11;
        for (uint32_t k = 0; k < i; k++)
            connect(i, k, (i * k) % 5);
    }
    ck_assert(placement_find(&found, &problem, 2000, &err) == STATUS_OK);
    ck_assert(!found.is_exact);
    ck_assert_double_eq_tol(found.cost, cost_of(found.device), 1e-9);
    ck_assert(placement_find(&found, &problem, 10, &err) == STATUS_EXHAUSTED);
    ck_assert(strstr(err.text, "10 steps") != NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compute/verbs/placement");
    TCase *cases = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int n_failed;

    tcase_add_test(cases, machin);
    tcase_add_test(cases, nothing_to_divide);
    tcase_add_test(cases, as_by_counting);
    tcase_add_test(cases, bounded);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? 0 : 1;
}
