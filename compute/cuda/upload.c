/* Uploads weights: rows are copied through pinned memory on the stream of copies, and repacked on
 * the other stream while the next ones are copied. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/parts.h"
#include "compute/numerics/dtype.h"

enum { PIECE_BYTES = 4 << 20 };

static void cuda_upload_close_slot(struct upload_slot *s)
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
    if (device_enter(&c->device)) {
        for (size_t i = 0; i < 2; i++)
            cuda_upload_close_slot(&c->uploads[i]);
        device_leave();
    }
    memset(c->uploads, 0, sizeof(c->uploads));
}

static cudaError_t cuda_upload_open_slot(struct upload_slot *s, size_t cap_bytes)
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

static cudaError_t cuda_upload_reserve(struct cuda *c, size_t size_bytes)
{
    cudaError_t rc = cudaSuccess;

    if (size_bytes <= c->uploads[0].cap_bytes && size_bytes <= c->uploads[1].cap_bytes)
        return rc;
    rc = cudaStreamSynchronize(c->list.compute);
    upload_close(c);
    for (size_t i = 0; i < 2 && rc == cudaSuccess; i++)
        rc = cuda_upload_open_slot(&c->uploads[i], size_bytes);
    return rc;
}

static cudaError_t wait_for(struct upload_slot *s)
{
    cudaError_t rc = s->is_busy ? cudaEventSynchronize(s->done) : cudaSuccess;

    s->is_busy = false;
    return rc;
}

/* Copies and repacks the rows in s->host. */
static cudaError_t send(struct cuda *c, struct upload_slot *s, const struct cuda_matrix *to,
                        size_t size_bytes, size_t first, size_t n)
{
    cudaStream_t compute = c->list.compute, copies = c->list.copies;
    cudaError_t rc;

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

/* Reads rows in the matrix's type; file_rows has room for them in the file's, where that is another
 * one. */
static enum status read_rows(const struct cuda_matrix *to, const struct tensor *from, size_t first,
                             size_t n, uint8_t *file_rows, void *out, struct error *err)
{
    enum status rc = tensor_read(from, first, n, file_rows != NULL ? file_rows : out, err);

    if (rc == STATUS_OK && file_rows != NULL) {
        assert(to->type == DTYPE_F32);
        dtype_decode(from->type, file_rows, n * from->n_cols, out);
    }
    return rc;
}

static enum status send_rows(struct cuda *c, const struct cuda_matrix *to,
                             const struct tensor *from, size_t n_rows, uint8_t *file_rows,
                             struct error *err)
{
    size_t row_bytes = dtype_row_bytes(to->type, from->n_cols);
    enum status read = STATUS_OK;
    size_t piece = 0;
    cudaError_t rc;

    if (!device_enter(&c->device)) {
        *err = c->device.failed;
        return err->status;
    }
    rc =
        cuda_upload_reserve(c, n_rows * row_bytes > PIECE_BYTES ? n_rows * row_bytes : PIECE_BYTES);
    for (size_t first = 0, n; rc == cudaSuccess && first < from->n_rows; first += n, piece++) {
        struct upload_slot *s = &c->uploads[piece % 2];

        n = from->n_rows - first < n_rows ? from->n_rows - first : n_rows;
        rc = wait_for(s);
        if (rc != cudaSuccess)
            break;
        read = read_rows(to, from, first, n, file_rows, s->host, err);
        if (read != STATUS_OK)
            break;
        rc = send(c, s, to, n * row_bytes, first, n);
    }
    device_leave();
    return read != STATUS_OK ? read : device_status(&c->device, rc, "take a weight", err);
}

enum status upload_matrix(struct cuda *c, const struct cuda_matrix *to, const struct tensor *from,
                          struct error *err)
{
    size_t row_bytes = dtype_row_bytes(to->type, from->n_cols);
    size_t n_rows = PIECE_BYTES / (row_bytes * CUDA_PANEL_ROWS) * CUDA_PANEL_ROWS;
    size_t file_bytes = dtype_row_bytes(from->type, from->n_cols);
    uint8_t *file_rows = NULL;
    enum status rc;

    if (n_rows == 0)
        n_rows = CUDA_PANEL_ROWS;
    if (to->type != from->type && (file_rows = try_alloc(n_rows, file_bytes)) == NULL)
        return error_no_memory(err, (uint64_t)n_rows * file_bytes, from->name);
    rc = send_rows(c, to, from, n_rows, file_rows, err);
    free(file_rows);
    return rc;
}
