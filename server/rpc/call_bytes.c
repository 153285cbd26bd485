/* Messages that cross the port without a copy: received ones as gRPC's pieces, sent ones from
 * shared memory. */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "server/call/call.h"
#include "server/rpc/call_parts.h"

struct received {
    struct call_bytes bytes;
    grpc_byte_buffer *message;
    struct iovec pieces[];
};

static void received_release(struct call_bytes *bytes)
{
    struct received *r = container_of(bytes, struct received, bytes);

    grpc_byte_buffer_destroy(r->message);
    free(r);
}

struct call_bytes *call_bytes_make(grpc_byte_buffer *message)
{
    const grpc_slice_buffer *slices = &message->data.raw.slice_buffer;
    struct received *r = try_alloc(1, sizeof(*r) + slices->count * sizeof(r->pieces[0]));

    if (r == NULL)
        return NULL;
    for (size_t i = 0; i < slices->count; i++)
        r->pieces[i] = (struct iovec){GRPC_SLICE_START_PTR(slices->slices[i]),
                                      GRPC_SLICE_LENGTH(slices->slices[i])};
    r->bytes = (struct call_bytes){r->pieces, slices->count, slices->length, received_release};
    r->message = message;
    return &r->bytes;
}

grpc_byte_buffer *call_pieces_join(const struct call_piece *pieces, size_t n_pieces)
{
    grpc_byte_buffer *out = grpc_raw_byte_buffer_create(NULL, 0);

    for (size_t i = 0; i < n_pieces; i++) {
        const struct call_piece *p = &pieces[i];

        /* gRPC only reads shared memory */
        grpc_slice_buffer_add(
            &out->data.raw.slice_buffer,
            p->release == NULL ? grpc_slice_from_copied_buffer(p->data, p->size_bytes)
                               : grpc_slice_new_with_user_data((void *)(uintptr_t)p->data,
                                                               p->size_bytes, p->release, p->arg));
    }
    return out;
}
