#include "server/api/parley/params_download.h"

#include "parley/v1/params.pb-c.h"
#include "proto/chunk.h"

void download_begin(struct params_download *d, struct snapshot *s, bool has_values,
                    uint64_t wait_us, uint64_t counted_in)
{
    *d = (struct params_download){.snapshot = snapshot_ref(s),
                                  .has_values = has_values,
                                  .wait_us = wait_us,
                                  .counted_in = counted_in};
}

void download_drop(struct params_download *d)
{
    snapshot_unref(d->snapshot);
    d->snapshot = NULL;
}

static void write_version(const struct params_download *d, struct call *call)
{
    Parley__V1__ParamsDownload message = PARLEY__V1__PARAMS_DOWNLOAD__INIT;
    Parley__V1__ParamsVersion version = PARLEY__V1__PARAMS_VERSION__INIT;
    const struct snapshot *s = d->snapshot;

    version.version = s->version;
    version.contributors = s->contributors;
    version.n_contributors = s->n_contributors;
    version.round_wait_us = d->wait_us;
    version.size_bytes = d->has_values ? s->size_bytes : 0;
    version.counted_in = d->counted_in;
    version.last_step = d->last_step;
    version.in_memory = d->is_in_memory;
    message.what_case = PARLEY__V1__PARAMS_DOWNLOAD__WHAT_VERSION;
    message.version = &version;
    call_write(call, &message.base, false);
}

static void params_download_release(void *arg)
{
    snapshot_unref(arg);
}

static void write_chunk(const struct params_download *d, struct call *call, size_t i)
{
    struct snapshot *s = d->snapshot;
    const size_t offset = i * SNAPSHOT_CHUNK_BYTES, n = snapshot_chunk_bytes(s, i);
    struct chunk_frame frame;

    chunk_frame(&frame, offset, n, s->crcs[i]);
    call_write_pieces(
        call,
        (const struct call_piece[]){
            {frame.head, frame.n_head, NULL, NULL},
            {(const char *)s->values + offset, n, params_download_release, snapshot_ref(s)},
            {frame.tail, frame.n_tail, NULL, NULL},
        },
        3, false);
}

static void write_hash(const struct params_download *d, struct call *call)
{
    Parley__V1__ParamsDownload message = PARLEY__V1__PARAMS_DOWNLOAD__INIT;

    message.what_case = PARLEY__V1__PARAMS_DOWNLOAD__WHAT_SHA256;
    message.sha256.data = d->snapshot->sha256;
    message.sha256.len = SHA256_BYTES;
    call_write(call, &message.base, false);
}

bool download_write(struct params_download *d, struct call *call)
{
    size_t last = d->has_values ? d->snapshot->n_chunks + 1 : 0;

    if (d->at == 0)
        write_version(d, call);
    else if (d->at <= d->snapshot->n_chunks)
        write_chunk(d, call, d->at - 1);
    else
        write_hash(d, call);
    if (d->at++ < last)
        return false;
    download_drop(d);
    return true;
}
