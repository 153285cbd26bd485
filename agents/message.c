#include "agents/message.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"

static const char *const roles[] = {
    [ROLE_SYSTEM] = "system",
    [ROLE_USER] = "user",
    [ROLE_ASSISTANT] = "assistant",
    [ROLE_TOOL] = "tool",
};

enum { N_ROLES = sizeof(roles) / sizeof(roles[0]) };

const char *role_name(enum role r)
{
    assert((size_t)r < N_ROLES);
    return roles[r];
}

enum status role_parse(enum role *out, const char *name, struct error *err)
{
    for (size_t i = 0; i < N_ROLES; i++) {
        if (strcmp(roles[i], name) == 0) {
            *out = (enum role)i;
            return STATUS_OK;
        }
    }
    return error_field(err, "role", "is '%.40s', it must be system, user, assistant or tool", name);
}

void sampling_init(struct sampling *s)
{
#define NEUTRAL(name, NAME, kind, number, neutral, ...) .name = (neutral),
    *s = (struct sampling){SAMPLING_FIELDS(NEUTRAL)};
#undef NEUTRAL
}

/* Written so that a NaN fails. */
static bool is_within(double value, double least, double most)
{
    return value >= least && value <= most;
}

static enum status check_numbers(const struct sampling *s, struct error *err)
{
#define CHECK(name, NAME, kind, number, neutral, least, most, bounds, since) \
    if (!is_within((double)s->name, (double)(least), (double)(most)))        \
        return error_field(err, #name, "is %g, it must be " bounds, (double)s->name);
    SAMPLING_FIELDS(CHECK)
#undef CHECK
    if (s->max_tokens != 0 && s->min_tokens > s->max_tokens)
        return error_field(err, "min_tokens", "is %u, it must be at most max_tokens (%u)",
                           s->min_tokens, s->max_tokens);
    if (s->n_logprobs > SAMPLING_MAX_LOGPROBS)
        return error_field(err, "logprobs", "is %u, it must be at most %d", s->n_logprobs,
                           SAMPLING_MAX_LOGPROBS);
    return STATUS_OK;
}

static enum status check_stops(const struct sampling *s, struct error *err)
{
    if (s->n_stops > SAMPLING_MAX_STOPS)
        return error_field(err, "stop", "has %zu texts, it may have at most %d", s->n_stops,
                           SAMPLING_MAX_STOPS);
    for (size_t i = 0; i < s->n_stops; i++) {
        if (s->stops[i].len == 0)
            return error_field(err, "stop", "has an empty text (number %zu)", i + 1);
        if (s->stops[i].len > SAMPLING_MAX_STOP_BYTES)
            return error_field(err, "stop",
                               "has a text of %zu bytes (number %zu), a text may have at most %d",
                               s->stops[i].len, i + 1, SAMPLING_MAX_STOP_BYTES);
        if (!utf8_is_valid(s->stops[i].text, s->stops[i].len))
            return error_field(err, "stop", "has a text that is not UTF-8 (number %zu)", i + 1);
    }
    return STATUS_OK;
}

static enum status check_biases(const struct sampling *s, size_t n_vocab, struct error *err)
{
    if (s->n_biases > SAMPLING_MAX_BIASES)
        return error_field(err, "logit_bias", "has %zu tokens, it may have at most %d", s->n_biases,
                           SAMPLING_MAX_BIASES);
    for (size_t i = 0; i < s->n_biases; i++) {
        const struct logit_bias *b = &s->biases[i];

        if (b->id < 0 || (size_t)b->id >= n_vocab)
            return error_field(err, "logit_bias",
                               "names token %d, but the vocabulary has only %zu tokens", b->id,
                               n_vocab);
        if (isnan(b->bias) || (isinf(b->bias) && b->bias > 0))
            return error_field(err, "logit_bias", "of token %d is %g, it must be finite or -inf",
                               b->id, (double)b->bias);
    }
    return STATUS_OK;
}

enum status sampling_check(const struct sampling *s, size_t n_vocab, struct error *err)
{
    enum status rc = check_numbers(s, err);

    if (rc == STATUS_OK)
        rc = check_stops(s, err);
    if (rc == STATUS_OK)
        rc = check_biases(s, n_vocab, err);
    return rc;
}

const char *finish_name(enum finish f)
{
    static const char *const names[] = {
        [FINISH_NONE] = "none",         [FINISH_STOP] = "stop",
        [FINISH_LENGTH] = "length",     [FINISH_CANCELLED] = "cancelled",
        [FINISH_DEADLINE] = "deadline", [FINISH_ERROR] = "error",
        [FINISH_OBSERVED] = "observed", [FINISH_WORKER_LOST] = "worker_lost",
    };

    assert((size_t)f < sizeof(names) / sizeof(names[0]));
    return names[f];
}
