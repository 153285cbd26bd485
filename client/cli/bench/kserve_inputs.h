/* The inputs of a model, as its KServe metadata describe them, with values drawn once. Those that
 * the model's configuration calls optional are left out. */
#ifndef CLIENT_CLI_BENCH_KSERVE_INPUTS_H
#define CLIENT_CLI_BENCH_KSERVE_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "client/lib/parley.h"

enum { KSERVE_MAX_DIMS = 8, KSERVE_MAX_INPUT_BYTES = 64 << 20, KSERVE_MAX_INPUTS = 32 };

struct kserve_input {
    char *name, *datatype;
    int64_t shape[KSERVE_MAX_DIMS]; /* a dimension that is open is 1 */
    size_t n_dims;
    bool is_text;
    size_t n;          /* elements */
    struct buf values; /* of numbers, as they are sent */
};

struct kserve_inputs {
    struct kserve_input items[KSERVE_MAX_INPUTS];
    size_t n;
};

/* Asks the server. To be deinited also after a failure. */
enum status kserve_inputs_read(struct kserve_inputs *out, struct parley_channel *channel,
                               const char *model, struct error *err) MUST_CHECK;
void kserve_inputs_deinit(struct kserve_inputs *in);

#endif
