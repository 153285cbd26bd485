#include "tests/bench/onednn.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

enum { SRC, WEIGHTS, DST, N_ARGS };

struct onednn_product {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[N_ARGS];
};

static dnnl_status_t add_memory(struct onednn_product *p, size_t i, int arg,
                                const dnnl_memory_desc_t *desc)
{
    void *bytes;
    dnnl_status_t rc;

    p->args[i].arg = arg;
    rc = dnnl_memory_create(&p->args[i].memory, desc, p->engine, DNNL_MEMORY_ALLOCATE);
    if (rc == dnnl_success)
        rc = dnnl_memory_get_data_handle(p->args[i].memory, &bytes);
    if (rc == dnnl_success)
        memset(bytes, 3, dnnl_memory_desc_get_size(desc));
    return rc;
}

static dnnl_status_t open_product(struct onednn_product *p, dnnl_dim_t n, dnnl_dim_t n_cols,
                                  dnnl_dim_t n_rows)
{
    dnnl_memory_desc_t src, weights, dst;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t made = NULL;
    dnnl_status_t rc;

    if ((rc = dnnl_engine_create(&p->engine, dnnl_cpu, 0)) != dnnl_success ||
        (rc = dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags)) !=
            dnnl_success ||
        (rc = dnnl_memory_desc_init_by_tag(&src, 2, (dnnl_dims_t){n, n_cols}, dnnl_u8, dnnl_ab)) !=
            dnnl_success ||
        (rc = dnnl_memory_desc_init_by_tag(&weights, 2, (dnnl_dims_t){n_cols, n_rows}, dnnl_s8,
                                           dnnl_format_tag_any)) != dnnl_success ||
        (rc = dnnl_memory_desc_init_by_tag(&dst, 2, (dnnl_dims_t){n, n_rows}, dnnl_s32, dnnl_ab)) !=
            dnnl_success ||
        (rc = dnnl_matmul_desc_init(&desc, &src, &weights, NULL, &dst)) != dnnl_success ||
        (rc = dnnl_primitive_desc_create(&made, &desc, NULL, p->engine, NULL)) != dnnl_success)
        return rc;
    rc = dnnl_primitive_create(&p->primitive, made);
    if (rc == dnnl_success)
        rc = add_memory(p, SRC, DNNL_ARG_SRC, &src);
    if (rc == dnnl_success)
        rc = add_memory(p, WEIGHTS, DNNL_ARG_WEIGHTS,
                        dnnl_primitive_desc_query_md(made, dnnl_query_weights_md, 0));
    if (rc == dnnl_success)
        rc = add_memory(p, DST, DNNL_ARG_DST, &dst);
    (void)dnnl_primitive_desc_destroy(made);
    return rc;
}

struct onednn_product *onednn_open(size_t n_threads, size_t n, size_t n_cols, size_t n_rows)
{
    struct onednn_product *p = calloc(1, sizeof(*p));

    omp_set_num_threads((int)n_threads);
    if (p != NULL &&
        open_product(p, (dnnl_dim_t)n, (dnnl_dim_t)n_cols, (dnnl_dim_t)n_rows) != dnnl_success) {
        onednn_close(p);
        p = NULL;
    }
    return p;
}

int onednn_run(struct onednn_product *p)
{
    return dnnl_primitive_execute(p->primitive, p->stream, N_ARGS, p->args) != dnnl_success ||
           dnnl_stream_wait(p->stream) != dnnl_success;
}

void onednn_close(struct onednn_product *p)
{
    for (size_t i = 0; i < N_ARGS; i++)
        (void)dnnl_memory_destroy(p->args[i].memory);
    (void)dnnl_primitive_destroy(p->primitive);
    (void)dnnl_stream_destroy(p->stream);
    (void)dnnl_engine_destroy(p->engine);
    free(p);
}
