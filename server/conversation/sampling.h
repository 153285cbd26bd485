/* Sampling parameters of which only some are given. The parameters of a conversation override the
 * model's defaults, and the parameters of a turn override those of the conversation. */
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
    uint32_t given;         /* bits of enum sampling_field */
    struct sampling values; /* the values of the given parameters; the others are not read */
};

/* Copies overrides into one block with their stops, biases and constraint. free() frees the block.
 * *out is NULL if no parameter is given. from may be NULL. */
enum status sampling_overrides_copy(struct sampling_overrides **out,
                                    const struct sampling_overrides *from,
                                    struct error *err) MUST_CHECK;

/* Sorts biases by id, so that equal maps become equal requests. INVALID names a token that has two
 * biases. */
enum status logit_biases_sort(struct logit_bias *biases, size_t n, struct error *err) MUST_CHECK;

/* Compares two sets of overrides. NULL stands for overrides without parameters. */
bool sampling_overrides_is_equal(const struct sampling_overrides *a,
                                 const struct sampling_overrides *b);

/* Applies overrides to s. From then on s borrows their stops, biases and constraint. overrides may
 * be NULL. */
void sampling_overrides_apply(const struct sampling_overrides *overrides, struct sampling *s);

#endif
