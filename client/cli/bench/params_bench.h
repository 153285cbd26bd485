/* The processes and shapes of `parley bench params`. */
#ifndef CLIENT_CLI_BENCH_PARAMS_BENCH_H
#define CLIENT_CLI_BENCH_PARAMS_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/options/verb.h"
#include "client/lib/parley.h"

/* Tensors, and how many numbers they have in all. */
struct params_shape {
    struct parley_tensor_spec *specs; /* [n_specs] */
    size_t n_specs, n;
};

/* The trainable tensors of ResNet-50 with n_classes: 161, of 23,569,502 numbers for 30. */
void params_shape_resnet50(struct params_shape *out, size_t n_classes);
/* One tensor of n. */
void params_shape_flat(struct params_shape *out, size_t n);
void params_shape_free(struct params_shape *s);

/* Number i of trainer k's gradient, the same in every round. */
float params_gradient_number(size_t k, size_t i);

/* The arguments of a process of the bench. */
struct params_role {
    const char *address;
    size_t index, n, n_rounds;
};

/* A line that a trainer prints: begin and end of a round on the monotonic clock, and the hash of
 * the parameters it received. */
#define PARAMS_ROUND_LINE "round %zu %llu %llu %64s"

/* "as-trainer", "as-floor-server" or "as-floor-client" as the first argument: runs that process to
 * its end. False for any other argument. */
bool params_role_run(int argc, char **argv, enum exit_code *ret_code);

enum exit_code params_floor_server(const struct params_role *role);
enum exit_code params_floor_client(const struct params_role *role);

#endif
