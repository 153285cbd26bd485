/* Weights on their way to the device: rows go through pinned memory on the stream of copies, and
 * are repacked on the other while the next ones are copied. */
#include <string.h>

#include "compute/cuda/parts.h"
#include "compute/dtype.h"

enum { PIECE_BYTES = 4 << 20 };

static void close_slot(struct upload_slot *s)
{
    (void)cudaFreeHost(s->host);
    (void)cudaFree(s->at);
    if (s->copied != NULL)
        (void)cudaEventDestroy(s->copied);
    if (s->done != NULL)
        (void)cudaEventDestroy(s->done);
}

void upload_close(struct cuda *c)
{
    if (context_enter(c)) {
        for (size_t i = 0; i < 2; i++)
            close_slot(&c->uploads[i]);
        context_leave();
    }
    memset(c->uploads, 0, sizeof c->uploads);
}

static cudaError_t open_slot(struct upload_slot *s, size_t cap_bytes)
{
    cudaError_t rc = cudaHostAlloc((void **)&s->host, cap_bytes, cudaHostAllocDefault);

    if (rc == cudaSuccess)
        rc = cudaMalloc((void **)&s->at, cap_bytes);
    if (rc == cudaSuccess)
        rc = cudaEventCreateWithFlags(&s->copied, cudaEventDisableTiming);
    if (rc == cudaSuccess)
        rc = cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming);
    if (rc == cudaSuccess)
        s->cap_bytes = cap_bytes;
    return rc;
}

static cudaError_t reserve(struct cuda *c, size_t size_bytes)
{
    cudaError_t rc = cudaSuccess;

    if (size_bytes <= c->uploads[0].cap_bytes && size_bytes <= c->uploads[1].cap_bytes)
        return rc;
    rc = cudaStreamSynchronize(c->list.compute);
    upload_close(c);
    for (size_t i = 0; i < 2 && rc == cudaSuccess; i++)
        rc = open_slot(&c->uploads[i], size_bytes);
    return rc;
}

static cudaError_t send(struct cuda *c, struct upload_slot *s, const struct cuda_matrix *to,
                        const uint8_t *rows, size_t size_bytes, size_t first, size_t n)
{
    cudaStream_t compute = c->list.compute, copies = c->list.copies;
    cudaError_t rc = cudaSuccess;

    if (s->is_busy)
        rc = cudaEventSynchronize(s->done);
    s->is_busy = false;
    if (rc != cudaSuccess)
        return rc;
    memcpy(s->host, rows, size_bytes);
    if ((rc = cudaMemcpyAsync(s->at, s->host, size_bytes, cudaMemcpyHostToDevice, copies)) !=
            cudaSuccess ||
        (rc = cudaEventRecord(s->copied, copies)) != cudaSuccess ||
        (rc = cudaStreamWaitEvent(compute, s->copied, 0)) != cudaSuccess)
        return rc;
    cuda_repack(to, s->at, (uint32_t)first, (uint32_t)n, compute);
    if ((rc = cudaGetLastError()) != cudaSuccess ||
        (rc = cudaEventRecord(s->done, compute)) != cudaSuccess)
        return rc;
    s->is_busy = true;
    return rc;
}

enum status upload_matrix(struct cuda *c, const struct cuda_matrix *to, const struct tensor *from,
                          struct error *err)
{
    size_t row_bytes = dtype_row_bytes(from->type, from->n_cols);
    size_t n_rows = PIECE_BYTES / (row_bytes * CUDA_PANEL_ROWS) * CUDA_PANEL_ROWS, piece = 0;
    const uint8_t *rows = from->data;
    cudaError_t rc;

    if (n_rows == 0)
        n_rows = CUDA_PANEL_ROWS;
    if (!context_enter(c)) {
        *err = c->failed;
        return err->status;
    }
    rc = reserve(c, n_rows * row_bytes > PIECE_BYTES ? n_rows * row_bytes : PIECE_BYTES);
    for (size_t first = 0, n; rc == cudaSuccess && first < from->n_rows; first += n, piece++) {
        n = from->n_rows - first < n_rows ? from->n_rows - first : n_rows;
        rc = send(c, &c->uploads[piece % 2], to, rows + first * row_bytes, n * row_bytes, first, n);
    }
    context_leave();
    return cuda_status(c, rc, "take a weight", err);
}
