/* Sampling parameters of which only some are given: a conversation's are laid over the model's
 * defaults, a turn's over the conversation's. */
#ifndef SERVER_SAMPLING_PATCH_H
#define SERVER_SAMPLING_PATCH_H

#include "agents/message.h"

enum sampling_field {
    SAMPLING_TEMPERATURE = 1 << 0,
    SAMPLING_TOP_K = 1 << 1,
    SAMPLING_TOP_P = 1 << 2,
    SAMPLING_MIN_P = 1 << 3,
    SAMPLING_REPETITION = 1 << 4,
    SAMPLING_PRESENCE = 1 << 5,
    SAMPLING_FREQUENCY = 1 << 6,
    SAMPLING_BIASES = 1 << 7,
    SAMPLING_SEED = 1 << 8,
    SAMPLING_STOPS = 1 << 9,
    SAMPLING_MAX_TOKENS = 1 << 10,
    SAMPLING_MIN_TOKENS = 1 << 11,
    SAMPLING_IGNORE_EOS = 1 << 12,
};

struct sampling_patch {
    uint32_t given;         /* of enum sampling_field */
    struct sampling values; /* of those only */
};

/* One block with its stops and biases, given back by free(). *out is NULL where nothing is given:
 * that is how a patch without content is kept. from may be NULL. */
enum status sampling_patch_copy(struct sampling_patch **out, const struct sampling_patch *from,
                                struct error *err) MUST_CHECK;

/* Either may be NULL: nothing given. */
bool sampling_patch_is_equal(const struct sampling_patch *a, const struct sampling_patch *b);

/* Lays patch (may be NULL) over s, which borrows its stops and biases from then on. */
void sampling_patch_lay(const struct sampling_patch *patch, struct sampling *s);

#endif
