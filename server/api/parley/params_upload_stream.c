#include "server/api/parley/params_upload_stream.h"

/* Bound of a header with its decoded form and its texts. */
#define HEADER_MAX_BYTES ((size_t)64 << 20)

static void upload_stream_read_more(struct upload_stream *in)
{
    bool is_ready = in->upload == NULL || upload_is_ready(in->upload);

    if (in->is_reading || in->is_complete || in->is_over || !is_ready)
        return;
    in->is_reading = true;
    call_read(in->call);
}

static void upload_stream_drop(struct upload_stream *in)
{
    upload_drop(in->upload);
    in->upload = NULL;
}

void upload_stream_init(struct upload_stream *in, struct call *call,
                        const struct upload_stream_kind *kind)
{
    *in = (struct upload_stream){.call = call, .kind = kind};
    upload_stream_read_more(in);
}

void upload_stream_fail(struct upload_stream *in, const struct error *err)
{
    if (in->is_over)
        return;
    in->is_over = true;
    upload_stream_drop(in);
    call_finish(in->call, err);
}

void upload_stream_close(struct upload_stream *in)
{
    in->is_over = true;
    upload_stream_drop(in);
}

void upload_stream_next(struct upload_stream *in)
{
    upload_stream_drop(in);
    in->is_complete = false;
    upload_stream_read_more(in);
}

static void on_ready(void *arg)
{
    upload_stream_read_more(arg);
}

static void on_ended(void *arg, const struct error *err)
{
    struct upload_stream *in = arg;

    if (err->status != STATUS_OK)
        upload_stream_fail(in, err);
    else if (!in->is_over)
        in->kind->complete(in);
}

void upload_stream_begin(struct upload_stream *in, const struct upload_config *config)
{
    const struct upload_events events = {.on_ready = on_ready, .ended = on_ended, .arg = in};
    struct error err;

    if (upload_open(&in->upload, config, &events, &err) != STATUS_OK) {
        in->upload = NULL;
        upload_stream_fail(in, &err);
    }
}

static void release_bytes(void *arg)
{
    call_bytes_free(arg);
}

/* Takes bytes. */
static enum status upload_stream_take_part(struct upload_stream *in, struct call_bytes *bytes,
                                           struct arena *arena, struct error *err)
{
    struct params_part part;
    enum status rc = params_part_read(&part, bytes, in->kind->type, arena, err);

    if (rc == STATUS_OK && part.kind == PARAMS_PART_MEMORY &&
        (in->upload != NULL || in->kind->memory == NULL))
        rc = error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "memory",
                           "memory can be asked for only between two updates of UpdateAndFetch");
    else if (rc == STATUS_OK && part.kind != PARAMS_PART_MEMORY &&
             (part.kind == PARAMS_PART_HEADER) != (in->upload == NULL))
        rc =
            error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "header",
                          in->upload == NULL ? "a header must come before chunks and their sha256"
                                             : "a header was sent before the sha256 of the upload");
    if (rc == STATUS_OK && part.kind == PARAMS_PART_CHUNK) {
        const struct upload_chunk chunk = {part.chunk, bytes->pieces, release_bytes, bytes};

        return upload_add(in->upload, &chunk, err);
    }
    call_bytes_free(bytes);
    if (rc != STATUS_OK)
        return rc;
    if (part.kind == PARAMS_PART_HEADER) {
        in->kind->header(in, part.message);
        return STATUS_OK;
    }
    in->is_complete = true;
    if (part.kind == PARAMS_PART_MEMORY) {
        in->kind->memory(in, part.message);
        return STATUS_OK;
    }
    return upload_end(in->upload, part.sha256, err);
}

void upload_stream_bytes(struct upload_stream *in, struct call_bytes *bytes)
{
    struct arena arena;
    struct error err;

    in->is_reading = false;
    if (in->is_over) {
        call_bytes_free(bytes);
        return;
    }
    if (bytes == NULL) {
        if (in->upload == NULL || upload_is_empty(in->upload)) {
            in->is_complete = true; /* no more messages will come */
            in->kind->closed(in);
        } else {
            (void)error_because(&err, STATUS_INVALID, REASON_INVALID_FIELD, "sha256",
                                "the stream ended inside an upload");
            upload_stream_fail(in, &err);
        }
        return;
    }
    arena_init(&arena, HEADER_MAX_BYTES);
    if (upload_stream_take_part(in, bytes, &arena, &err) != STATUS_OK)
        upload_stream_fail(in, &err);
    else
        upload_stream_read_more(in);
    arena_deinit(&arena);
}
