/* Checks a specification member by member, and checks tensors and numbers of uploads against it.
 * Errors name the field as it is called on the wire. */
#include "agents/params/spec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { QUEUE_DEFAULT = 64 };

static enum status check_rate(const char *field, float value, double below, struct error *err)
{
    if (isfinite(value) && value >= 0.0f && (double)value < below)
        return STATUS_OK;
    if (isfinite(below))
        return error_field(err, field, "is %g, it must be 0 or more and below %g", (double)value,
                           below);
    return error_field(err, field, "is %g, it must be 0 or more", (double)value);
}

static enum status spec_check_part(const char *field, float value, struct error *err)
{
    if (isfinite(value) && value >= 0.0f && value <= 1.0f)
        return STATUS_OK;
    return error_field(err, field, "is %g, it must be from 0 to 1", (double)value);
}

static enum status check_optim(const struct optim *o, struct error *err)
{
    enum status rc = check_rate("optimiser.weight_decay", o->weight_decay, HUGE_VAL, err);

    if (rc == STATUS_OK)
        rc = spec_check_part("optimiser.momentum", o->momentum, err);
    if (rc == STATUS_OK)
        rc = check_rate("optimiser.beta1", o->beta1, 1.0, err);
    if (rc == STATUS_OK)
        rc = check_rate("optimiser.beta2", o->beta2, 1.0, err);
    if (rc == STATUS_OK)
        rc = check_rate("optimiser.epsilon", o->epsilon, HUGE_VAL, err);
    if (rc != STATUS_OK)
        return rc;
    if (o->kind != OPTIM_SGD && o->epsilon == 0.0f) /* a gradient of 0 would give 0 / 0 */
        return error_field(err, "optimiser.epsilon", "is 0 in f32, it must be above 0");
    rc = spec_check_part("optimiser.dampening", o->dampening, err);
    if (rc != STATUS_OK)
        return rc;
    if (o->kind == OPTIM_SGD && o->nesterov && (o->momentum == 0.0f || o->dampening != 0.0f))
        return error_field(err, "optimiser.nesterov",
                           "is true, so momentum must be above 0 and dampening 0");
    return STATUS_OK;
}

static enum status check_round(struct params_spec *s, struct error *err)
{
    struct params_quorum *q = &s->quorum;

    if (s->round_size == 0 || s->round_size > PARAMS_MAX_ROUND)
        return error_field(err, "round_size", "is %zu, it must be from 1 to %d", s->round_size,
                           PARAMS_MAX_ROUND);
    if (q->min > s->round_size)
        return error_field(err, "quorum.min", "is %zu, but a round has only %zu gradients", q->min,
                           s->round_size);
    if (q->may_be_partial && q->timeout_ms == 0)
        return error_field(err, "quorum.timeout_ms",
                           "is 0, it must be above 0 because on_miss is APPLY_PARTIAL");
    if (q->min == 0)
        q->min = 1;
    if (s->fan_in == 0)
        s->fan_in = 1;
    if (s->max_queue == 0)
        s->max_queue = QUEUE_DEFAULT;
    if (s->max_queue > PARAMS_MAX_QUEUE)
        return error_field(err, "max_queue", "is %zu, it must be at most %d", s->max_queue,
                           PARAMS_MAX_QUEUE);
    if (s->fan_in > s->max_queue / s->round_size)
        return error_field(err, "max_queue",
                           "is %zu, it must be at least round_size times fan_in (%zu times %zu)",
                           s->max_queue, s->round_size, s->fan_in);
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status check_names(const struct params_spec *s, struct error *err)
{
    const char **names = try_alloc(s->n_tensors, sizeof(*names));
    enum status rc = STATUS_OK;

    if (names == NULL)
        return error_no_memory(err, s->n_tensors * sizeof(*names), "the names of tensors");
    for (size_t i = 0; i < s->n_tensors; i++)
        names[i] = s->tensors[i].name;
    qsort(names, s->n_tensors, sizeof(*names), compare_names);
    for (size_t i = 1; i < s->n_tensors && rc == STATUS_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            rc = error_field(err, "specs", "has two tensors with the name '%.64s'", names[i]);
    free(names);
    return rc;
}

static enum status spec_check_tensors(struct params_spec *s, struct error *err)
{
    if (s->n_tensors == 0 || s->n_tensors > PARAMS_MAX_TENSORS)
        return error_field(err, "specs", "has %zu tensors, it must have from 1 to %d", s->n_tensors,
                           PARAMS_MAX_TENSORS);
    s->n = 0;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct tensor_view *t = &s->tensors[i];
        size_t n;
        enum status rc;

        if (t->name[0] == '\0')
            return error_field(err, "specs", "has no name for tensor %zu", i);
        if (t->type != TENSOR_F32)
            return error_field(err, t->name, "is %s, it must be f32", tensor_type_name(t->type));
        rc = tensor_check(t, &n, err);
        if (rc != STATUS_OK)
            return rc;
        if (n > SIZE_MAX / 16 - s->n)
            return error_field(err, t->name, "makes the set larger than the address space");
        s->n += n;
    }
    if (s->n == 0)
        return error_field(err, "specs", "has only empty tensors");
    return check_names(s, err);
}

enum status params_spec_check(struct params_spec *s, struct error *err)
{
    enum status rc;

    if (s->name[0] == '\0' || strlen(s->name) > PARAMS_MAX_NAME)
        return error_field(err, "name", "has %zu bytes, it must have from 1 to %d", strlen(s->name),
                           PARAMS_MAX_NAME);
    rc = spec_check_tensors(s, err);
    if (rc == STATUS_OK)
        rc = check_optim(&s->optim, err);
    if (rc == STATUS_OK)
        rc = schedule_check(&s->schedule, err);
    if (rc == STATUS_OK)
        rc = check_round(s, err);
    return rc;
}

enum status params_spec_match(const struct params_spec *s, const struct tensor_view *tensors,
                              size_t n, struct error *err)
{
    if (n != s->n_tensors)
        return error_field(err, "specs", "has %zu tensors, but '%s' has %zu", n, s->name,
                           s->n_tensors);
    for (size_t i = 0; i < n; i++) {
        const struct tensor_view *have = &tensors[i], *want = &s->tensors[i];
        enum status rc;

        if (strcmp(have->name, want->name) != 0)
            return error_field(err, "specs", "has the tensor '%.40s' where '%s' has '%.40s'",
                               have->name, s->name, want->name);
        rc = tensor_expect(have, want->type, want->dims, want->n_dims, err);
        if (rc != STATUS_OK)
            return rc;
    }
    return STATUS_OK;
}

enum status params_spec_copy(struct params_spec *out, const struct params_spec *s,
                             struct arena *arena, struct error *err)
{
    struct tensor_view *tensors = arena_alloc(arena, s->n_tensors, sizeof(*tensors));
    bool ok = tensors != NULL;

    *out = *s;
    out->name = arena_strndup(arena, s->name, strlen(s->name));
    out->tensors = tensors;
    for (size_t i = 0; i < s->n_tensors && ok; i++) {
        const char *name = s->tensors[i].name;

        tensors[i] = s->tensors[i];
        tensors[i].name = arena_strndup(arena, name, strlen(name));
        ok = tensors[i].name != NULL;
    }
    if (!ok || out->name == NULL)
        return error_no_memory(err, s->n_tensors * sizeof(*tensors), "the specs of parameters");
    return STATUS_OK;
}

/* Infinities and NaN have all exponent bits set. The integer test needs no float comparison. */
static bool is_finite(const float *values, size_t n)
{
    uint32_t bad = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof(bits));
        bad |= (bits & 0x7f800000) == 0x7f800000;
    }
    return bad == 0;
}

enum status params_spec_check_finite(const struct params_spec *s, const float *values, size_t first,
                                     size_t n, struct error *err)
{
    size_t at = first, begin = 0, i = 0;

    if (is_finite(values + first, n))
        return STATUS_OK;
    while (isfinite(values[at]))
        at++;
    for (;; i++) {
        size_t n_here = s->tensors[i].size_bytes / sizeof(float);

        if (at < begin + n_here)
            break;
        begin += n_here;
    }
    return error_field(err, s->tensors[i].name, "is %g at position %zu, gradients must be finite",
                       (double)values[at], at - begin);
}

size_t params_spec_moments(const struct params_spec *s)
{
    if (s->optim.kind != OPTIM_SGD)
        return 2;
    return s->optim.momentum != 0.0f ? 1 : 0;
}
