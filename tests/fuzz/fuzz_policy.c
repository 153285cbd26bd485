/* Any bytes as a policy's file: an accepted file can be served. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/parts.h"
#include "compute/backends.h"
#include "tests/fuzz/target.h"

enum { ROWS = 2 };

/* A pass of the network, whose output is a distribution as far as its parameters permit; then a
 * step of the optimiser with the file's moments. */
static void serve(const struct gguf *g, const struct policy_spec *spec)
{
    const struct net_draw draws[ROWS] = {{1, 2, 3, true}, {1, 2, 3, false}};
    const struct backend_config config = {.n_threads = 1};
    struct backend *b;
    struct network net;
    struct error err;

    if (backend_open(&b, "ref", &config, &err) != STATUS_OK)
        abort();
    network_shape(&net, spec);
    if (network_open(&net, b, ROWS, &err) == STATUS_OK) {
        if (policy_file_read(g, &net, &err) != STATUS_OK)
            abort(); /* the spec's tensors were all checked */
        network_forward(&net, draws, ROWS);
        if (network_prepare(&net, &err) == STATUS_OK) {
            network_zero_gradients(&net);
            network_step(&net, 0.01f);
        }
        if (b->type->sync(b, &err) != STATUS_OK)
            abort();
    }
    network_close(&net);
    backend_close(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    /* aligned, and exactly size_bytes */
    uint8_t *bytes = malloc(size_bytes == 0 ? 1 : size_bytes);
    struct policy_spec spec;
    struct gguf *g;
    struct error err;

    if (bytes == NULL)
        abort();
    if (size_bytes > 0)
        memcpy(bytes, data, size_bytes);
    if (gguf_open_bytes(&g, bytes, size_bytes, "fuzzed", &err) == STATUS_OK) {
        if (policy_file_spec(g, &spec, &err) == STATUS_OK)
            serve(g, &spec);
        else
            assert(strncmp(err.text, "fuzzed: ", 8) == 0 && strchr(err.text, '\n') == NULL);
        gguf_close(g);
    }
    free(bytes);
    return 0;
}
