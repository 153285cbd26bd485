/* Weights whose rows are not those of their file. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/real.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/parts.h"

/* The row of the file that holds row i of the tensor: pair p of a head is its rows p and p +
 * head_dim / 2. */
static size_t row_of_pair(const struct tensor *t, size_t i)
{
    size_t head = i / t->head_dim, within = i % t->head_dim;

    return head * t->head_dim + within % 2 * (t->head_dim / 2) + within / 2;
}

static enum status copy_pairs(const struct tensor *t, size_t first, size_t n, uint8_t *to,
                              struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->type, t->n_cols);
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        rc = gguf_copy(t->file, t->file_at + row_of_pair(t, t->first_row + first + i) * n_bytes,
                       n_bytes, to + i * n_bytes, err);
    return rc;
}

/* E4M3, without infinities: 0x7F is no number. */
static float fp8_value(uint8_t byte)
{
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    const float sign = byte & 0x80 ? -1.0f : 1.0f;

    if (exponent == 15 && mantissa == 7)
        return NAN;
    return sign * (exponent == 0 ? ldexpf((float)mantissa, -9)
                                 : ldexpf((float)(8 + mantissa), exponent - 10));
}

/* Row i of a part, in whose place in the file a number is a byte. */
static enum status copy_fp8_row(const struct tensor *t, const struct tensor_part *part, size_t i,
                                void *room, float *to, struct error *err)
{
    const size_t n_scales = (t->n_cols + t->scale_cols - 1) / t->scale_cols;
    const size_t size = dtype_block_bytes(t->scale_type);
    uint8_t *bytes = room, *scales = bytes + t->n_cols;
    float scale;
    enum status rc = gguf_copy(part->file, part->at + i * t->n_cols, t->n_cols, bytes, err);

    if (rc == STATUS_OK)
        rc = gguf_copy(part->scale_file, part->scale_at + i / t->scale_rows * n_scales * size,
                       n_scales * size, scales, err);
    for (size_t c = 0; c < t->n_cols && rc == STATUS_OK; c++) {
        if (c % t->scale_cols == 0)
            dtype_decode(t->scale_type, scales + c / t->scale_cols * size, 1, &scale);
        to[c] = fp8_value(bytes[c]) * scale;
    }
    return rc;
}

/* Row i of a part: a block is an exponent, then the low nibbles of the first half of its numbers
 * and the high ones of the second; the file has pairs of neighbours, and exponents elsewhere. */
static enum status copy_mxfp4_row(const struct tensor *t, const struct tensor_part *part, size_t i,
                                  void *room, uint8_t *to, struct error *err)
{
    enum { HALF = 16 };
    const size_t n = t->n_cols / (2 * HALF), row = i * t->row_step + t->row_from;
    uint8_t *blocks = room, *exponents = blocks + n * HALF;
    enum status rc = gguf_copy(part->file, part->at + row * n * HALF, n * HALF, blocks, err);

    if (rc == STATUS_OK)
        rc = gguf_copy(part->scale_file, part->scale_at + row * n, n, exponents, err);
    for (size_t b = 0; b < n && rc == STATUS_OK; b++) {
        const uint8_t *in = blocks + b * HALF;
        uint8_t *out = to + b * (HALF + 1);

        *out++ = exponents[b];
        for (size_t k = 0; k < HALF; k++) {
            const uint8_t low = in[k / 2] >> 4 * (k % 2) & 15;
            const uint8_t high = in[(k + HALF) / 2] >> 4 * (k % 2) & 15;

            out[k] = (uint8_t)(low | high << 4);
        }
    }
    return rc;
}

/* Parts whose numbers are scaled. */
static enum status copy_scaled(const struct tensor *t, size_t first, size_t n, uint8_t *to,
                               struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->type, t->n_cols);
    void *room = try_alloc(t->n_cols, 1 + sizeof(float)); /* a row, and its scales */
    enum status rc = room == NULL ? error_no_memory(err, t->n_cols, "a weight") : STATUS_OK;

    for (size_t i = 0; i < n && rc == STATUS_OK; i++, to += n_bytes) {
        const size_t row = t->first_row + first + i, within = row % t->n_part_rows;
        const struct tensor_part *part = &t->parts[row / t->n_part_rows];

        rc = t->source == SOURCE_MXFP4
                 ? copy_mxfp4_row(t, part, within, room, to, err)
                 : copy_fp8_row(t, part, t->head_dim == 0 ? within : row_of_pair(t, within), room,
                                (float *)(void *)to, err);
    }
    free(room);
    return rc;
}

static enum status copy_parts(const struct tensor *t, size_t first, size_t n, uint8_t *to,
                              struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->type, t->n_cols);
    enum status rc = STATUS_OK;

    if (t->source != SOURCE_AS_IS)
        return copy_scaled(t, first, n, to, err);
    for (first += t->first_row; n > 0 && rc == STATUS_OK;) {
        const struct tensor_part *part = &t->parts[first / t->n_part_rows];
        size_t within = first % t->n_part_rows, left = t->n_part_rows - within;
        size_t some = n < left ? n : left;

        rc = gguf_copy(part->file, part->at + within * n_bytes, some * n_bytes, to, err);
        first += some;
        n -= some;
        to += some * n_bytes;
    }
    return rc;
}

/* Rows within … within + n - 1 of a part, of numbers of `size` bytes, to [n][n_cols]. Where columns
 * are not neighbours, each is read for all rows at once. */
static enum status copy_strided_part(const struct tensor *t, size_t part, size_t within, size_t n,
                                     uint8_t *room, uint8_t *to, struct error *err)
{
    const size_t size = dtype_block_bytes(t->file_type), span = (n - 1) * t->strides.row + 1;
    const uint64_t at = t->file_at + (part * t->strides.part + within * t->strides.row) * size;
    enum status rc = STATUS_OK;

    for (size_t i = 0; t->strides.col == 1 && i < n && rc == STATUS_OK; i++)
        rc = gguf_copy(t->file, at + i * t->strides.row * size, t->n_cols * size,
                       to + i * t->n_cols * size, err);
    for (size_t c = 0; t->strides.col != 1 && c < t->n_cols && rc == STATUS_OK; c++) {
        rc = gguf_copy(t->file, at + c * t->strides.col * size, span * size, room, err);
        for (size_t i = 0; i < n && rc == STATUS_OK; i++)
            memcpy(to + (i * t->n_cols + c) * size, room + i * t->strides.row * size, size);
    }
    return rc;
}

static enum status copy_strided(const struct tensor *t, size_t first, size_t n, uint8_t *to,
                                struct error *err)
{
    const size_t size = dtype_block_bytes(t->file_type), n_numbers = n * t->n_cols;
    uint8_t *room = try_alloc(n * t->strides.row + 1, size);
    uint8_t *raw = t->type == t->file_type ? to : try_alloc(n_numbers + 1, size);
    enum status rc = STATUS_OK;

    if (room == NULL || raw == NULL)
        rc = error_no_memory(err, n_numbers * size, "a weight");
    for (size_t i = 0; i < n && rc == STATUS_OK;) {
        const size_t row = t->first_row + first + i, within = row % t->n_part_rows;
        const size_t left = t->n_part_rows - within, some = n - i < left ? n - i : left;

        rc = copy_strided_part(t, row / t->n_part_rows, within, some, room,
                               raw + i * t->n_cols * size, err);
        i += some;
    }
    if (rc == STATUS_OK && raw != to)
        dtype_decode(t->file_type, raw, n_numbers, (float *)(void *)to);
    if (raw != to)
        free(raw);
    free(room);
    return rc;
}

/* A vector: the form of a bias that belongs to a matrix of pairs, or of another float type. */
static enum status copy_vector(const struct tensor *t, float *to, struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->file_type, t->n_cols);
    void *room = try_alloc(n_bytes, 1);
    float *values = try_alloc(t->n_cols, sizeof(*values));
    enum status rc;

    assert(t->type == DTYPE_F32 && t->n_rows == 1);
    if (room == NULL || values == NULL)
        rc = error_no_memory(err, n_bytes, "a weight");
    else
        rc = gguf_copy(t->file, t->file_at, n_bytes, room, err);
    if (rc == STATUS_OK)
        dtype_decode(t->file_type, room, t->n_cols, values);
    for (size_t i = 0; i < t->n_cols && rc == STATUS_OK; i++)
        to[i] = values[t->head_dim == 0 ? i : row_of_pair(t, i)] + t->add;
    for (size_t i = 0; t->is_decay && i < t->n_cols && rc == STATUS_OK; i++)
        to[i] = -real_exp_float((double)to[i]);
    free(values);
    free(room);
    return rc;
}

static float factor_of_row(const struct tensor *t, size_t row)
{
    size_t i = 0;

    while (i + 1 < TENSOR_N_FACTORS && row >= t->factors[i].until)
        i++;
    return t->factors[i].by;
}

static enum status copy_multiplied(const struct tensor *t, size_t first, size_t n, float *to,
                                   struct error *err)
{
    const size_t n_bytes = dtype_row_bytes(t->file_type, t->n_cols);
    void *room = try_alloc(n_bytes + 1, 1);
    enum status rc = room == NULL ? error_no_memory(err, n_bytes, "a weight") : STATUS_OK;

    for (size_t i = 0; i < n && rc == STATUS_OK; i++, to += t->n_cols) {
        const size_t row = t->first_row + first + i;
        const float by = factor_of_row(t, row);

        rc = gguf_copy(t->file, t->file_at + row * n_bytes, n_bytes, room, err);
        if (rc != STATUS_OK)
            break;
        dtype_decode(t->file_type, room, t->n_cols, to);
        for (size_t c = 0; c < t->n_cols; c++)
            to[c] *= by;
    }
    free(room);
    return rc;
}

/* Row `row` of what is taken of part `part`. */
static uint64_t place_of_taken(const struct tensor *t, size_t part, size_t row, size_t row_bytes)
{
    return t->file_at + (part * t->taken.n_rows + t->taken.first + row) * row_bytes;
}

static enum status copy_some(const struct tensor *t, size_t first, size_t n, uint8_t *to,
                             struct error *err)
{
    const size_t row_bytes = dtype_row_bytes(t->type, t->n_cols);
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < n && rc == STATUS_OK; i++) {
        const size_t row = t->first_row + first + i;

        rc = gguf_copy(t->file,
                       place_of_taken(t, row / t->n_part_rows, row % t->n_part_rows, row_bytes),
                       row_bytes, to + i * row_bytes, err);
    }
    return rc;
}

/* Of each of a part's rows in the file some columns, which are rows here. */
static enum status copy_turned(const struct tensor *t, size_t first, size_t n, float *to,
                               struct error *err)
{
    const size_t row_bytes = dtype_row_bytes(t->file_type, t->n_part_rows);
    void *room = try_alloc(row_bytes, 1);
    float *values = try_alloc(t->n_part_rows, sizeof(*values));
    enum status rc =
        room == NULL || values == NULL ? error_no_memory(err, row_bytes, "a weight") : STATUS_OK;

    for (size_t i = 0, some; i < n && rc == STATUS_OK; i += some) {
        const size_t row = t->first_row + first + i, within = row % t->n_part_rows;
        const size_t left = t->n_part_rows - within;

        some = n - i < left ? n - i : left;
        for (size_t c = 0; c < t->n_cols && rc == STATUS_OK; c++) {
            rc = gguf_copy(t->file, place_of_taken(t, row / t->n_part_rows, c, row_bytes),
                           row_bytes, room, err);
            if (rc == STATUS_OK)
                dtype_decode(t->file_type, room, t->n_part_rows, values);
            for (size_t k = 0; k < some && rc == STATUS_OK; k++)
                to[(i + k) * t->n_cols + c] = values[within + k];
        }
    }
    free(values);
    free(room);
    return rc;
}

enum status gguf_copy_formed(const struct tensor *t, size_t first, size_t n, void *to,
                             struct error *err)
{
    if (t->form == TENSOR_PAIRS)
        return copy_pairs(t, first, n, to, err);
    if (t->form == TENSOR_PARTS)
        return copy_parts(t, first, n, to, err);
    if (t->form == TENSOR_MULTIPLIED)
        return copy_multiplied(t, first, n, to, err);
    if (t->form == TENSOR_STRIDED)
        return copy_strided(t, first, n, to, err);
    if (t->form == TENSOR_SOME)
        return copy_some(t, first, n, to, err);
    if (t->form == TENSOR_TURNED)
        return copy_turned(t, first, n, to, err);
    return n == 0 ? STATUS_OK : copy_vector(t, to, err);
}
