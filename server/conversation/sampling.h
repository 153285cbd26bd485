/* Sampling parameters of which only some are given: a conversation's override the model's
 * defaults, a turn's override the conversation's. */
#ifndef SERVER_CONVERSATION_SAMPLING_H
#define SERVER_CONVERSATION_SAMPLING_H

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
    SAMPLING_CONSTRAINT = 1 << 13,
};

struct sampling_overrides {
    uint32_t given;         /* of enum sampling_field */
    struct sampling values; /* of those only */
};

/* One block with its stops, biases and constraint, freed by free(). *out is NULL where nothing is
 * given. from may be NULL. */
enum status sampling_overrides_copy(struct sampling_overrides **out,
                                    const struct sampling_overrides *from,
                                    struct error *err) MUST_CHECK;

/* Either may be NULL: nothing given. */
bool sampling_overrides_is_equal(const struct sampling_overrides *a,
                                 const struct sampling_overrides *b);

/* Applies overrides (may be NULL) to s, which borrows their stops, biases and constraint from then
 * on. */
void sampling_overrides_apply(const struct sampling_overrides *overrides, struct sampling *s);

#endif
