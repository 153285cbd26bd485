/* The head of a .safetensors file: the length of a JSON object, the object, then the tensors'
 * bytes. Format: https://github.com/huggingface/safetensors */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/hf_parts.h"

enum { LENGTH_BYTES = 8, HEADER_MAX_BYTES = 100 << 20, SHOWN_MAX = 80, DIMS_MAX = 4 };

enum status hf_tensor_refuse_type(const char *name, struct error *err)
{
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "is of type '%.*s'; only F32, F16, BF16, F8_E4M3 and MXFP4's U8 are supported "
                     "in safetensors",
                     SHOWN_MAX, name);
}

static enum status read_hf_type(struct hf_tensor *out, const json_t *info, struct error *err)
{
    static const struct {
        const char *name;
        enum dtype type;
    } types[] = {{"F32", DTYPE_F32}, {"F16", DTYPE_F16}, {"BF16", DTYPE_BF16}};
    const char *name = hf_json_text(info, "dtype");

    static const struct {
        const char *name;
        uint64_t bytes;
    } others[] = {{"I64", 8}, {"I32", 4}, {"BOOL", 1}}; /* of tables that older files have */

    out->is_fp8 = strcmp(name, "F8_E4M3") == 0;
    out->is_bytes = strcmp(name, "U8") == 0;
    out->number_bytes = 1;
    if (out->is_fp8 || out->is_bytes)
        return STATUS_OK;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(others[i].name, name) == 0) {
            out->other_type = others[i].name;
            out->number_bytes = others[i].bytes;
            return STATUS_OK;
        }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0) {
            out->type = types[i].type;
            out->number_bytes = dtype_block_bytes(out->type);
            return STATUS_OK;
        }
    return hf_tensor_refuse_type(name, err);
}

/* The bytes that the shape takes. */
static enum status read_hf_shape(struct hf_tensor *t, uint64_t *ret_bytes, const json_t *info,
                                 struct error *err)
{
    const json_t *shape = json_object_get(info, "shape");
    uint64_t n = t->number_bytes;

    if (!json_is_array(shape))
        return error_set(err, STATUS_DATA_LOSS, "has no shape");
    t->n_dims = json_array_size(shape);
    if (t->n_dims > DIMS_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED, "has %zu dimensions, it must have at most %d",
                         t->n_dims, DIMS_MAX);
    for (size_t i = 0; i < t->n_dims; i++) {
        const json_t *dim = json_array_get(shape, i);

        if (!json_is_integer(dim) || json_integer_value(dim) <= 0)
            return error_set(err, STATUS_DATA_LOSS,
                             "has a shape with an entry that is not a number above 0");
        t->dims[i] = (uint64_t)json_integer_value(dim);
        if (__builtin_mul_overflow(n, t->dims[i], &n))
            return error_set(err, STATUS_DATA_LOSS, "has a size that no file can have");
    }
    *ret_bytes = n;
    return STATUS_OK;
}

/* Offsets count from data_at, where n_data bytes begin. */
static enum status read_hf_place(struct hf_tensor *t, const json_t *info, uint64_t data_at,
                                 uint64_t n_data, struct error *err)
{
    const json_t *offsets = json_object_get(info, "data_offsets");
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    uint64_t begin, end;

    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to) ||
        json_integer_value(from) < 0 || json_integer_value(to) < json_integer_value(from))
        return error_set(err, STATUS_DATA_LOSS, "has data_offsets that are not a begin and an end");
    begin = (uint64_t)json_integer_value(from);
    end = (uint64_t)json_integer_value(to);
    if (end > n_data)
        return error_set(err, STATUS_DATA_LOSS,
                         "truncated: it ends at %" PRIu64 " of %" PRIu64 " bytes of data, so "
                         "%" PRIu64 " are missing",
                         end, n_data, end - n_data);
    t->begin = data_at + begin;
    t->size_bytes = end - begin;
    return STATUS_OK;
}

static enum status read_hf_tensor(struct hf_tensor *t, const json_t *info, uint64_t data_at,
                                  uint64_t n_data, struct error *err)
{
    uint64_t n_bytes = 0;
    enum status rc;

    if (!json_is_object(info))
        return error_set(err, STATUS_DATA_LOSS, "is not described by an object");
    if ((rc = read_hf_type(t, info, err)) != STATUS_OK ||
        (rc = read_hf_shape(t, &n_bytes, info, err)) != STATUS_OK ||
        (rc = read_hf_place(t, info, data_at, n_data, err)) != STATUS_OK)
        return rc;
    if (n_bytes != t->size_bytes)
        return error_set(err, STATUS_DATA_LOSS,
                         "has %" PRIu64 " bytes where its shape asks for %" PRIu64, t->size_bytes,
                         n_bytes);
    return STATUS_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct hf_tensor *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The format has neither holes nor overlaps: where there are some, the header is of other data. */
static enum status check_hf_places(struct hf_tensors *t, uint64_t data_at, uint64_t file_bytes,
                                   struct error *err)
{
    uint64_t end = data_at;

    qsort(t->list, t->n, sizeof(t->list[0]), by_begin);
    for (size_t i = 0; i < t->n; i++) {
        if (t->list[i].begin != end)
            return error_set(err, STATUS_DATA_LOSS, "tensor '%.*s' %s", SHOWN_MAX, t->list[i].name,
                             t->list[i].begin < end ? "overlaps the tensor before it"
                                                    : "begins after a gap");
        end += t->list[i].size_bytes;
    }
    if (end != file_bytes)
        return error_set(err, STATUS_DATA_LOSS, "%" PRIu64 " bytes behind its last tensor",
                         file_bytes - end);
    return STATUS_OK;
}

static enum status read_hf_list(struct hf_tensors *t, uint64_t data_at, uint64_t file_bytes,
                                struct error *err)
{
    const char *name;
    json_t *info;

    json_object_foreach(t->header, name, info)
    {
        enum status rc;

        if (strcmp(name, "__metadata__") == 0)
            continue;
        t->list[t->n].name = name;
        rc = read_hf_tensor(&t->list[t->n], info, data_at, file_bytes - data_at, err);
        if (rc != STATUS_OK)
            return error_prefix(err, "tensor '%.*s'", SHOWN_MAX, name);
        t->n++;
    }
    return check_hf_places(t, data_at, file_bytes, err);
}

enum status hf_tensors_parse(struct hf_tensors *out, const char *header, size_t header_bytes,
                             uint64_t file_bytes, struct error *err)
{
    struct hf_tensors t = {0};
    enum status rc = hf_json_parse(&t.header, header, header_bytes, err);
    size_t n;

    if (rc != STATUS_OK)
        return error_prefix(err, "its header");
    n = json_object_size(t.header);
    if (n > GGUF_TENSORS_MAX)
        rc = error_set(err, STATUS_UNIMPLEMENTED, "there are %zu tensors, there can be at most %d",
                       n, GGUF_TENSORS_MAX);
    else if ((t.list = try_alloc(n + 1, sizeof(*t.list))) == NULL)
        rc = error_no_memory(err, (n + 1) * sizeof(*t.list), "its list of tensors");
    else
        rc = read_hf_list(&t, LENGTH_BYTES + header_bytes, file_bytes, err);
    if (rc == STATUS_OK)
        *out = t;
    else
        hf_tensors_close(&t);
    return rc;
}

enum status hf_tensors_open(struct hf_tensors *out, const struct gguf *file, struct error *err)
{
    uint8_t length[LENGTH_BYTES];
    uint64_t n;
    char *header;
    enum status rc;

    if (file->size_bytes < LENGTH_BYTES)
        return error_set(err, STATUS_DATA_LOSS, "%zu bytes are too few for a safetensors file",
                         file->size_bytes);
    rc = gguf_copy(file, 0, LENGTH_BYTES, length, err);
    if (rc != STATUS_OK)
        return rc;
    n = gguf_load_u64(length);
    if (n > file->size_bytes - LENGTH_BYTES || n > HEADER_MAX_BYTES)
        return error_set(err, STATUS_DATA_LOSS,
                         "a header of %" PRIu64 " bytes in a file of %zu: no safetensors file, or "
                         "truncated",
                         n, file->size_bytes);
    header = try_alloc(n + 1, 1);
    if (header == NULL)
        return error_no_memory(err, n + 1, "its header");
    rc = gguf_copy(file, LENGTH_BYTES, n, header, err);
    if (rc == STATUS_OK)
        rc = hf_tensors_parse(out, header, n, file->size_bytes, err);
    free(header);
    return rc;
}

void hf_tensors_close(struct hf_tensors *t)
{
    json_decref(t->header);
    free(t->list);
    *t = (struct hf_tensors){0};
}
