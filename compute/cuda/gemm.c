/* Makes a plan of cuBLASLt for a shape of a product and keeps it for the next product of that
 * shape. gemm_takes says for which shapes the library has a plan; the caller computes the others
 * by kernels of its own. */
#include "compute/cuda/gemm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { N_PLANS = 512 };

/* The algorithm for a shape. Its hash gives its place; a later shape with that place replaces
 * it. */
struct gemm_plan {
    struct gemm_shape shape;
    bool takes;
    struct cublas_algo algo;
};

/* The four matrices of a call. cuBLAS is column-major where we are row-major: our w is transposed
 * for cuBLAS, and the columns that it writes are our rows. */
struct layouts {
    void *w, *x, *out;
};

/* Failures. */

static bool works(struct gemm *g, int rc, const char *what)
{
    struct error err;

    if (rc == CUBLAS_SUCCESS)
        return true;
    if (rc == CUBLAS_ALLOC_FAILED) {
        (void)error_set(&err, STATUS_EXHAUSTED, "out of device memory (cuBLAS, to %s)", what);
    } else {
        g->device->is_dead = true;
        (void)error_set(&err, STATUS_INTERNAL, "cuBLAS failed to %s: %s", what,
                        g->blas->get_status_name(rc));
    }
    device_fail(g->device, &err);
    return false;
}

/* After launches. */
static bool gemm_works(void *arg)
{
    struct gemm *g = arg;
    int rc = g->failed;

    g->failed = CUBLAS_SUCCESS;
    return works(g, rc, "multiply");
}

/* Opening. */

static int gemm_open_parts(struct gemm *g)
{
    const struct cublas *l = g->blas;
    const int32_t transposed = CUBLAS_TRANSPOSED;
    const uint64_t workspace_bytes = GEMM_WORKSPACE;
    int rc = l->create(&g->handle);

    if (rc == CUBLAS_SUCCESS)
        rc = l->matmul_desc_create(&g->desc, CUBLAS_COMPUTE_F32, CUBLAS_R_32F);
    if (rc == CUBLAS_SUCCESS)
        rc = l->matmul_desc_set_attribute(g->desc, CUBLAS_DESC_TRANSA, &transposed,
                                          sizeof(transposed));
    if (rc == CUBLAS_SUCCESS)
        rc = l->matmul_preference_create(&g->preference);
    if (rc == CUBLAS_SUCCESS)
        rc = l->matmul_preference_set_attribute(g->preference, CUBLAS_PREF_WORKSPACE,
                                                &workspace_bytes, sizeof(workspace_bytes));
    return rc;
}

enum status gemm_open(struct gemm *g, struct cuda_device *d, struct command_list *list,
                      struct error *err)
{
    enum status rc = cublas_load(&g->blas, err);
    int code;

    if (rc != STATUS_OK)
        return rc;
    g->device = d;
    g->list = list;
    list->check = gemm_works;
    list->check_arg = g;
    g->workspace = device_take(g->device, GEMM_WORKSPACE);
    if (g->workspace == NULL) {
        rc = device_no_memory(g->device, GEMM_WORKSPACE, "cuBLAS", err);
    } else if (!device_enter(g->device)) {
        rc = error_set(err, STATUS_INTERNAL, "the CUDA device has failed");
    } else {
        code = gemm_open_parts(g);
        device_leave();
        if (code != CUBLAS_SUCCESS)
            rc = error_set(err, STATUS_PRECONDITION, "%.60s cannot be initialised: %.60s",
                           g->blas->file, g->blas->get_status_name(code));
    }
    if (rc != STATUS_OK)
        gemm_close(g);
    else
        g->plans = xalloc(N_PLANS * sizeof(*g->plans));
    return rc;
}

/* On a dead device the handle is not destroyed: that would call the device. */
void gemm_close(struct gemm *g)
{
    if (g->blas == NULL)
        return;
    if (g->workspace != NULL)
        list_run(g->list); /* the list may use the workspace */
    device_free(g->device, g->workspace);
    if (g->preference != NULL)
        (void)g->blas->matmul_preference_destroy(g->preference);
    if (g->desc != NULL)
        (void)g->blas->matmul_desc_destroy(g->desc);
    if (g->handle != NULL && device_enter(g->device)) {
        (void)g->blas->destroy(g->handle);
        (void)cudaGetLastError();
        device_leave();
    }
    free(g->plans);
    g->list->check = NULL;
    *g = (struct gemm){0};
}

/* Shapes. */

static int open_layouts(const struct cublas *l, const struct gemm_shape *s, struct layouts *out)
{
    int rc;

    memset(out, 0, sizeof(*out));
    rc = l->matrix_layout_create(&out->w, CUBLAS_R_16F, s->n_cols, s->n_rows, (int64_t)s->n_cols);
    if (rc == CUBLAS_SUCCESS)
        rc = l->matrix_layout_create(&out->x, CUBLAS_R_16F, s->n_cols, s->n, (int64_t)s->n_cols);
    if (rc == CUBLAS_SUCCESS)
        rc = l->matrix_layout_create(&out->out, CUBLAS_R_32F, s->n_rows, s->n, (int64_t)s->stride);
    return rc;
}

static void close_layouts(const struct cublas *l, const struct layouts *layouts)
{
    void *const all[] = {layouts->w, layouts->x, layouts->out};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] != NULL)
            (void)l->matrix_layout_destroy(all[i]);
}

static bool same_shape(const struct gemm_shape *a, const struct gemm_shape *b)
{
    return a->n == b->n && a->n_rows == b->n_rows && a->n_cols == b->n_cols &&
           a->stride == b->stride;
}

static struct gemm_plan *gemm_place_of(struct gemm *g, const struct gemm_shape *s)
{
    size_t h = s->n;

    h = h * 1000003 + s->n_rows;
    h = h * 1000003 + s->n_cols;
    h = h * 1000003 + s->stride;
    return &g->plans[(h ^ h >> 17) % N_PLANS];
}

static bool make_plan(struct gemm *g, const struct gemm_shape *s, struct gemm_plan *out)
{
    struct cublas_found found = {0};
    struct layouts layouts;
    int n_found = 0, rc;

    if (!device_enter(g->device))
        return false;
    rc = open_layouts(g->blas, s, &layouts);
    if (rc == CUBLAS_SUCCESS)
        rc = g->blas->matmul_algo_get_heuristic(g->handle, g->desc, layouts.w, layouts.x,
                                                layouts.out, layouts.out, g->preference, 1, &found,
                                                &n_found);
    close_layouts(g->blas, &layouts);
    device_leave();
    if (rc == CUBLAS_NOT_SUPPORTED) {
        rc = CUBLAS_SUCCESS;
        n_found = 0;
    }
    if (!works(g, rc, "find a way to multiply"))
        return false;
    *out = (struct gemm_plan){
        .shape = *s, .takes = n_found > 0 && found.state == CUBLAS_SUCCESS, .algo = found.algo};
    return true;
}

bool gemm_takes(struct gemm *g, const struct gemm_shape *s)
{
    struct gemm_plan *plan;

    if (g->blas == NULL || g->device->is_dead || g->device->failed.status != STATUS_OK)
        return false;
    plan = gemm_place_of(g, s);
    return (same_shape(&plan->shape, s) || make_plan(g, s, plan)) && plan->takes;
}

/* Multiplying. */

struct gemm_args {
    struct gemm *gemm;
    struct gemm_shape shape;
    struct cublas_algo algo;
    const uint16_t *x, *w;
    float *out;
    float beta; /* the factor of the old contents */
};

static void launch_gemm(const void *args, cudaStream_t stream)
{
    const struct gemm_args *a = args;
    struct gemm *g = a->gemm;
    const float one = 1.0f;
    struct layouts layouts;
    int rc = open_layouts(g->blas, &a->shape, &layouts);

    if (rc == CUBLAS_SUCCESS)
        rc = g->blas->matmul(g->handle, g->desc, &one, a->w, layouts.w, a->x, layouts.x, &a->beta,
                             a->out, layouts.out, a->out, layouts.out, &a->algo, g->workspace,
                             GEMM_WORKSPACE, stream);
    close_layouts(g->blas, &layouts);
    if (g->failed == CUBLAS_SUCCESS)
        g->failed = rc;
}

void gemm_add(struct gemm *g, const struct gemm_shape *s, const uint16_t *x, const uint16_t *w,
              float *out, bool adds)
{
    struct gemm_args a;
    struct error err;

    if (!gemm_takes(g, s)) { /* looked up again: another shape may have replaced it */
        (void)error_set(&err, STATUS_INTERNAL, "cuBLAS does not support a shape any more");
        device_fail(g->device, &err);
        return;
    }
    assert((uintptr_t)x % CUBLAS_ALIGN == 0 && (uintptr_t)w % CUBLAS_ALIGN == 0 &&
           (uintptr_t)out % CUBLAS_ALIGN == 0);
    memset(&a, 0, sizeof(a));
    a.gemm = g;
    a.shape = *s;
    a.algo = gemm_place_of(g, s)->algo;
    a.x = x;
    a.w = w;
    a.out = out;
    a.beta = adds ? 1.0f : 0.0f;
    list_add(g->list, launch_gemm, &a, sizeof(a));
}
