/* A copy of a KV page, or of a state, which a step carries out before it runs its rows. */
#ifndef COMPUTE_KV_COPY_H
#define COMPUTE_KV_COPY_H

#include <stdint.h>

enum kv_way {
    KV_COPY,        /* from page to page */
    KV_OFFLOAD,     /* from a page to a slot */
    KV_RELOAD,      /* from a slot to a page */
    KV_WRITE,       /* from the host's memory, image, to a page */
    KV_WRITE_STATE, /* the same, to a slot of recurrent state */
};

struct kv_copy {
    int32_t from, to;
    enum kv_way way;
    /* What the backend gave of the page or slot; borrowed until the step has ended. */
    const void *image;
};

#endif
