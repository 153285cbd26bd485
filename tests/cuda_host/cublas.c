/* A stand-in of cuBLASLt: the calls that compute/cuda makes, with the names and rules of the real
 * ones. It multiplies f16 matrices, sums in f32, and splits the sums into pieces whose number
 * depends on the number of rows: so a row has other bits in another batch, as with the real one. */
#include "tests/cuda_host/cublas.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "base/alloc.h"
#include "compute/cuda/cublas.h"
#include "compute/numerics/dtype.h"
#include "tests/cuda_host/control.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAGIC = 0x6c747473 };

enum kind { HANDLE, DESC, LAYOUT, PREFERENCE };

/* An object that was created and is not destroyed. */
struct object {
    struct object *next;
    enum kind kind;
    int32_t transposed;       /* DESC */
    uint64_t workspace_bytes; /* PREFERENCE */
    int type;                 /* LAYOUT, and what follows */
    uint64_t n_rows, n_cols;  /* by columns */
    int64_t stride;
};

/* All under lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static uint64_t n_calls, n_matmuls, n_looked_up, n_objects;
static long fail_after = -1;
static int fail_with;
static bool refuses;

static int leave(int status)
{
    (void)pthread_mutex_unlock(&lock);
    return status;
}

/* Begins a call; it has the lock. */
static int begin(void)
{
    (void)pthread_mutex_lock(&lock);
    n_calls++;
    if (fail_after < 0)
        return CUBLAS_SUCCESS;
    return fail_after-- > 0 ? CUBLAS_SUCCESS : fail_with;
}

static void control_fail(long calls, int status)
{
    (void)pthread_mutex_lock(&lock);
    fail_after = calls;
    fail_with = status;
    (void)leave(0);
}

static uint64_t read_counter(const uint64_t *counter)
{
    uint64_t n;

    (void)pthread_mutex_lock(&lock);
    n = *counter;
    (void)leave(0);
    return n;
}

static uint64_t control_n_calls(void)
{
    return read_counter(&n_calls);
}

static uint64_t control_n_matmuls(void)
{
    return read_counter(&n_matmuls);
}

static uint64_t control_n_looked_up(void)
{
    return read_counter(&n_looked_up);
}

static uint64_t control_n_objects(void)
{
    return read_counter(&n_objects);
}

static void control_refuse(bool all)
{
    (void)pthread_mutex_lock(&lock);
    refuses = all;
    (void)leave(0);
}

extern const struct cublas_host cublas_host;

EXPORT const struct cublas_host cublas_host = {control_fail,      control_n_calls,
                                               control_n_matmuls, control_n_looked_up,
                                               control_n_objects, control_refuse};

/* Objects. */

static int make(void **out, const struct object *like)
{
    int rc = begin();
    struct object *o;

    if (rc == CUBLAS_SUCCESS) {
        o = xalloc(sizeof(*o));
        *o = *like;
        o->next = objects;
        objects = o;
        n_objects++;
        *out = o;
    }
    return leave(rc);
}

static struct object **find(const void *at, enum kind kind)
{
    for (struct object **p = &objects; *p != NULL; p = &(*p)->next)
        if (*p == at && (*p)->kind == kind)
            return p;
    return NULL;
}

static bool is_held(const void *at, enum kind kind)
{
    return find(at, kind) != NULL;
}

static int destroy(void *at, enum kind kind)
{
    int rc = begin();
    struct object **p = find(at, kind), *o;

    if (p == NULL)
        abort(); /* the real one would do anything at all */
    o = *p;
    *p = o->next;
    free(o);
    n_objects--;
    return leave(rc);
}

static int set(void *at, enum kind kind, void *to, const void *from, size_t n_bytes, size_t wanted)
{
    int rc = begin();

    if (rc == CUBLAS_SUCCESS && (!is_held(at, kind) || n_bytes != wanted))
        abort();
    if (rc == CUBLAS_SUCCESS)
        memcpy(to, from, n_bytes);
    return leave(rc);
}

EXPORT size_t cublasLtGetVersion(void);
EXPORT size_t cublasLtGetVersion(void)
{
    return 130002;
}

EXPORT const char *cublasLtGetStatusName(int status);
EXPORT const char *cublasLtGetStatusName(int status)
{
    return status == CUBLAS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                             : "a status of cuBLAS";
}

EXPORT int cublasLtCreate(void **handle);
EXPORT int cublasLtCreate(void **handle)
{
    return make(handle, &(struct object){.kind = HANDLE});
}

EXPORT int cublasLtDestroy(void *handle);
EXPORT int cublasLtDestroy(void *handle)
{
    return destroy(handle, HANDLE);
}

EXPORT int cublasLtMatmulDescCreate(void **desc, int compute, int scale_type);
EXPORT int cublasLtMatmulDescCreate(void **desc, int compute, int scale_type)
{
    if (compute != CUBLAS_COMPUTE_F32 || scale_type != CUBLAS_R_32F)
        abort();
    return make(desc, &(struct object){.kind = DESC});
}

EXPORT int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *from,
                                          size_t n_bytes);
EXPORT int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *from,
                                          size_t n_bytes)
{
    struct object *o = desc;

    if (attribute != CUBLAS_DESC_TRANSA)
        abort();
    return set(o, DESC, &o->transposed, from, n_bytes, sizeof(o->transposed));
}

EXPORT int cublasLtMatmulDescDestroy(void *desc);
EXPORT int cublasLtMatmulDescDestroy(void *desc)
{
    return destroy(desc, DESC);
}

EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t n_rows, uint64_t n_cols,
                                      int64_t stride);
EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t n_rows, uint64_t n_cols,
                                      int64_t stride)
{
    return make(
        layout,
        &(struct object){
            .kind = LAYOUT, .type = type, .n_rows = n_rows, .n_cols = n_cols, .stride = stride});
}

EXPORT int cublasLtMatrixLayoutDestroy(void *layout);
EXPORT int cublasLtMatrixLayoutDestroy(void *layout)
{
    return destroy(layout, LAYOUT);
}

EXPORT int cublasLtMatmulPreferenceCreate(void **preference);
EXPORT int cublasLtMatmulPreferenceCreate(void **preference)
{
    return make(preference, &(struct object){.kind = PREFERENCE});
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *from,
                                                size_t n_bytes);
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *from,
                                                size_t n_bytes)
{
    struct object *o = preference;

    if (attribute != CUBLAS_PREF_WORKSPACE)
        abort();
    return set(o, PREFERENCE, &o->workspace_bytes, from, n_bytes, sizeof(o->workspace_bytes));
}

EXPORT int cublasLtMatmulPreferenceDestroy(void *preference);
EXPORT int cublasLtMatmulPreferenceDestroy(void *preference)
{
    return destroy(preference, PREFERENCE);
}

/* Products. */

/* d = (the transposed a) · b + beta * c, all by columns. */
struct product {
    uint64_t n_rows, n_cols, n_inner; /* of d; n_inner: of the sums */
    int64_t a_stride, b_stride, d_stride;
    const uint16_t *a, *b;
    const float *c;
    float *d;
    float beta;
};

static bool is_layout(const struct object *o, int type)
{
    return is_held(o, LAYOUT) && o->type == type && o->stride >= (int64_t)o->n_rows &&
           o->n_cols > 0 && o->n_rows > 0;
}

/* False: their shapes do not match. */
static bool read_shape(struct product *out, const struct object *desc, const struct object *a,
                       const struct object *b, const struct object *c, const struct object *d)
{
    if (!is_held(desc, DESC) || desc->transposed != CUBLAS_TRANSPOSED ||
        !is_layout(a, CUBLAS_R_16F) || !is_layout(b, CUBLAS_R_16F) || !is_layout(c, CUBLAS_R_32F) ||
        !is_layout(d, CUBLAS_R_32F) || a->n_rows != b->n_rows || a->n_cols != d->n_rows ||
        b->n_cols != d->n_cols || c->n_rows != d->n_rows || c->n_cols != d->n_cols ||
        c->stride != d->stride)
        return false;
    *out = (struct product){.n_rows = d->n_rows,
                            .n_cols = d->n_cols,
                            .n_inner = a->n_rows,
                            .a_stride = a->stride,
                            .b_stride = b->stride,
                            .d_stride = d->stride};
    return true;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c,
                                          void *d, void *preference, int n_wanted,
                                          struct cublas_found *found, int *n_found);
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c,
                                          void *d, void *preference, int n_wanted,
                                          struct cublas_found *found, int *n_found)
{
    int rc = begin();
    struct product p;

    if (rc != CUBLAS_SUCCESS)
        return leave(rc);
    if (!is_held(handle, HANDLE) || !is_held(preference, PREFERENCE) || n_wanted < 1 ||
        !read_shape(&p, desc, a, b, c, d))
        abort();
    n_looked_up++;
    *n_found = 0;
    if (refuses)
        return leave(CUBLAS_NOT_SUPPORTED);
    *n_found = 1;
    *found = (struct cublas_found){.algo = {{MAGIC, p.n_rows, p.n_cols, p.n_inner}},
                                   .state = CUBLAS_SUCCESS};
    return leave(CUBLAS_SUCCESS);
}

static void multiply(const void *arg)
{
    struct product p;
    uint64_t n_pieces;

    memcpy(&p, arg, sizeof(p));
    n_pieces = 1 + p.n_cols % 4;
    for (uint64_t col = 0; col < p.n_cols; col++)
        for (uint64_t row = 0; row < p.n_rows; row++) {
            const uint16_t *a = p.a + (int64_t)row * p.a_stride;
            const uint16_t *b = p.b + (int64_t)col * p.b_stride;
            size_t at = row + (size_t)((int64_t)col * p.d_stride);
            float all = 0.0f;

            for (uint64_t piece = 0; piece < n_pieces; piece++) {
                float sum = 0.0f;

                for (uint64_t i = piece; i < p.n_inner; i += n_pieces)
                    sum += f16_to_f32(a[i]) * f16_to_f32(b[i]);
                all += sum;
            }
            p.d[at] = p.beta == 0.0f ? all : all + p.beta * p.c[at]; /* at 0 c is not read */
        }
}

/* Whether a column-major matrix is all in device memory, and aligned as required. */
static bool is_placed(const struct cuda_host_calls *calls, const void *at, uint64_t n_rows,
                      uint64_t n_cols, int64_t stride, size_t size)
{
    return (uintptr_t)at % CUBLAS_ALIGN == 0 &&
           calls->room(at) >= ((n_cols - 1) * (uint64_t)stride + n_rows) * size;
}

EXPORT int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a,
                          void *a_layout, const void *b, void *b_layout, const void *beta,
                          const void *c, void *c_layout, void *d, void *d_layout,
                          const struct cublas_algo *algo, void *workspace, size_t workspace_bytes,
                          cudaStream_t stream);
EXPORT int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a,
                          void *a_layout, const void *b, void *b_layout, const void *beta,
                          const void *c, void *c_layout, void *d, void *d_layout,
                          const struct cublas_algo *algo, void *workspace, size_t workspace_bytes,
                          cudaStream_t stream)
{
    const struct cuda_host_calls *calls = *(const struct cuda_host_calls *const *)stream;
    int rc = begin(), queued;
    struct product p;
    float one;

    if (rc != CUBLAS_SUCCESS)
        return leave(rc);
    memcpy(&one, alpha, sizeof(one));
    if (!is_held(handle, HANDLE) || !read_shape(&p, desc, a_layout, b_layout, c_layout, d_layout) ||
        one != 1.0f || c != d || algo->data[0] != MAGIC || algo->data[1] != p.n_rows ||
        algo->data[2] != p.n_cols || algo->data[3] != p.n_inner ||
        !is_placed(calls, a, p.n_inner, p.n_rows, p.a_stride, sizeof(*p.a)) ||
        !is_placed(calls, b, p.n_inner, p.n_cols, p.b_stride, sizeof(*p.b)) ||
        !is_placed(calls, d, p.n_rows, p.n_cols, p.d_stride, sizeof(*p.d)) ||
        calls->room(workspace) < workspace_bytes)
        abort();
    memcpy(&p.beta, beta, sizeof(p.beta));
    p.a = a;
    p.b = b;
    p.c = c;
    p.d = d;
    n_matmuls++;
    (void)leave(CUBLAS_SUCCESS);
    queued = calls->enqueue(stream, multiply, &p, sizeof(p), "cublasLtMatmul");
    return queued == cudaSuccess                 ? CUBLAS_SUCCESS
           : queued == cudaErrorMemoryAllocation ? CUBLAS_ALLOC_FAILED
                                                 : CUBLAS_EXECUTION_FAILED;
}
