#include "server/journal/body_bytes.h"

#include <string.h>

static void body_put(struct body_writer *w, const void *bytes, size_t len)
{
    if (!w->has_failed && len > 0)
        w->has_failed = buf_append(w->out, bytes, len) != STATUS_OK;
}

static void body_put_number(struct body_writer *w, uint64_t number, size_t n_bytes)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
    body_put(w, bytes, n_bytes);
}

void body_put_u32(struct body_writer *w, uint32_t number)
{
    body_put_number(w, number, 4);
}

void body_put_u64(struct body_writer *w, uint64_t number)
{
    body_put_number(w, number, 8);
}

void body_put_float(struct body_writer *w, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    body_put_u32(w, bits);
}

void body_put_double(struct body_writer *w, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    body_put_u64(w, bits);
}

void body_put_bytes(struct body_writer *w, const void *bytes, size_t len)
{
    body_put_u64(w, len);
    body_put(w, bytes, len);
}

void body_put_text(struct body_writer *w, const char *text)
{
    body_put_bytes(w, text, strlen(text));
}

enum status body_written(const struct body_writer *w, struct error *err)
{
    return w->has_failed ? error_no_memory(err, w->out->len, "a record of the journal") : STATUS_OK;
}

static const void *body_take(struct body_reader *r, size_t len)
{
    const void *at = r->at;

    if (r->is_bad || len > (size_t)(r->end - r->at)) {
        r->is_bad = true;
        return NULL;
    }
    r->at += len;
    return at;
}

static uint64_t body_take_number(struct body_reader *r, size_t n_bytes)
{
    const unsigned char *bytes = body_take(r, n_bytes);
    uint64_t number = 0;

    for (size_t i = 0; bytes != NULL && i < n_bytes; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

uint32_t body_take_u32(struct body_reader *r)
{
    return (uint32_t)body_take_number(r, 4);
}

uint64_t body_take_u64(struct body_reader *r)
{
    return body_take_number(r, 8);
}

uint32_t body_take_up_to(struct body_reader *r, uint32_t max)
{
    uint32_t number = body_take_u32(r);

    r->is_bad = r->is_bad || number > max;
    return r->is_bad ? 0 : number;
}

float body_take_float(struct body_reader *r)
{
    uint32_t bits = body_take_u32(r);
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

double body_take_double(struct body_reader *r)
{
    const uint64_t bits = body_take_u64(r);
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

const void *body_take_bytes(struct body_reader *r, size_t *ret_len)
{
    const void *bytes;

    *ret_len = (size_t)body_take_u64(r);
    bytes = body_take(r, *ret_len);
    if (bytes == NULL)
        *ret_len = 0;
    return bytes;
}

const char *body_take_text(struct body_reader *r)
{
    size_t len;
    const char *bytes = body_take_bytes(r, &len);
    char *text = bytes == NULL ? NULL : arena_strndup(r->arena, bytes, len);

    r->is_short = r->is_short || (bytes != NULL && text == NULL);
    return text == NULL ? "" : text;
}

void *body_take_array(struct body_reader *r, size_t n, size_t size_bytes, size_t min_bytes)
{
    void *array = NULL;

    r->is_bad = r->is_bad || n > (size_t)(r->end - r->at) / min_bytes;
    if (!r->is_bad)
        array = arena_alloc(r->arena, n + 1, size_bytes);
    r->is_short = r->is_short || (!r->is_bad && array == NULL);
    r->is_bad = r->is_bad || array == NULL;
    return array;
}

struct body_reader body_begin(const void *body, size_t size_bytes, uint32_t newest,
                              struct arena *arena)
{
    struct body_reader r = {
        .at = body, .end = (const unsigned char *)body + size_bytes, .arena = arena};

    r.version = body_take_up_to(&r, newest);
    r.is_bad = r.is_bad || r.version == 0;
    return r;
}

enum status body_end(const struct body_reader *r, struct error *err)
{
    if (r->is_short)
        return error_no_memory(err, 0, "a record of the journal");
    if (r->is_bad || r->at != r->end)
        return error_set(err, STATUS_DATA_LOSS, "a record of the journal is not correct");
    return STATUS_OK;
}
