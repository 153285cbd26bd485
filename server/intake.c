#include "server/intake.h"

/* What a header, its decoded form and its texts may take. */
#define HEADER_MAX_BYTES ((size_t)64 << 20)

static void read_more(struct intake *in)
{
    bool has_room = in->upload == NULL || upload_has_room(in->upload);

    if (in->is_reading || in->is_complete || in->is_over || !has_room)
        return;
    in->is_reading = true;
    call_read(in->call);
}

static void drop(struct intake *in)
{
    upload_drop(in->upload);
    in->upload = NULL;
}

void intake_init(struct intake *in, struct call *call, const struct intake_kind *kind)
{
    *in = (struct intake){.call = call, .kind = kind};
    read_more(in);
}

void intake_fail(struct intake *in, const struct error *err)
{
    if (in->is_over)
        return;
    in->is_over = true;
    drop(in);
    call_finish(in->call, err);
}

void intake_gone(struct intake *in)
{
    in->is_over = true;
    drop(in);
}

void intake_next(struct intake *in)
{
    drop(in);
    in->is_complete = false;
    read_more(in);
}

static void on_room(void *arg)
{
    read_more(arg);
}

static void on_ended(void *arg, const struct error *err)
{
    struct intake *in = arg;

    if (err->status != STATUS_OK)
        intake_fail(in, err);
    else if (!in->is_over)
        in->kind->complete(in);
}

void intake_begin(struct intake *in, const struct upload_config *config)
{
    const struct upload_events events = {.room = on_room, .ended = on_ended, .arg = in};
    struct error err;

    if (upload_open(&in->upload, config, &events, &err) != STATUS_OK) {
        in->upload = NULL;
        intake_fail(in, &err);
    }
}

static void release_bytes(void *arg)
{
    call_bytes_free(arg);
}

/* Takes bytes. */
static enum status take_part(struct intake *in, struct call_bytes *bytes, struct arena *arena,
                             struct error *err)
{
    struct params_part part;
    enum status rc = params_part_read(&part, bytes, in->kind->type, arena, err);

    if (rc == STATUS_OK && (part.kind == PARAMS_PART_HEADER) != (in->upload == NULL))
        rc = error_set(err, STATUS_INVALID,
                       in->upload == NULL ? "a header must come before chunks and their sha256"
                                          : "a header came before the sha256 of the upload");
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
    return upload_end(in->upload, part.sha256, err);
}

void intake_bytes(struct intake *in, struct call_bytes *bytes)
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
            in->is_complete = true; /* no more will come */
            in->kind->closed(in);
        } else {
            (void)error_set(&err, STATUS_INVALID, "the stream ended inside an upload");
            intake_fail(in, &err);
        }
        return;
    }
    arena_init(&arena, HEADER_MAX_BYTES);
    if (take_part(in, bytes, &arena, &err) != STATUS_OK)
        intake_fail(in, &err);
    else
        read_more(in);
    arena_deinit(&arena);
}
