/* Sampling parameters of which only some are given: a conversation's override the model's
 * defaults, a turn's override the conversation's. */
#ifndef SERVER_CONVERSATION_SAMPLING_H
#define SERVER_CONVERSATION_SAMPLING_H

#include "agents/message.h"
#include "proto/sampling_fields.h"

/* Bits of sampling_overrides.given, as the journal's records have them. */
enum sampling_field {
    SAMPLING_BIASES = 1 << 7,
    SAMPLING_STOPS = 1 << 9,
    SAMPLING_CONSTRAINT = 1 << 13,
#define SAMPLING_BIT(name, NAME, kind, number, ...) SAMPLING_##NAME = 1 << ((number)-1),
    SAMPLING_FIELDS(SAMPLING_BIT)
#undef SAMPLING_BIT
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

/* Sorts biases by id, so that equal maps become equal requests. STATUS_INVALID names a token that
 * stands there twice. */
enum status logit_biases_sort(struct logit_bias *biases, size_t n, struct error *err) MUST_CHECK;

/* Either may be NULL: nothing given. */
bool sampling_overrides_is_equal(const struct sampling_overrides *a,
                                 const struct sampling_overrides *b);

/* Applies overrides (may be NULL) to s, which borrows their stops, biases and constraint from then
 * on. */
void sampling_overrides_apply(const struct sampling_overrides *overrides, struct sampling *s);

#endif
