#include "server/conversation/sampling.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum status sampling_overrides_copy(struct sampling_overrides **out,
                                    const struct sampling_overrides *from, struct error *err)
{
    const struct sampling *s;
    struct sampling_overrides *p;
    struct text *stops;
    struct logit_bias *biases;
    struct constraint *constraint;
    char *at;
    size_t size;

    if (from == NULL || from->given == 0) {
        *out = NULL;
        return STATUS_OK;
    }
    s = &from->values;
    size = sizeof(*p) + s->n_stops * sizeof(*stops) + s->n_biases * sizeof(*biases);
    for (size_t i = 0; i < s->n_stops; i++)
        size += s->stops[i].len + 1;
    if (s->constraint != NULL)
        size += sizeof(*constraint) + s->constraint->len + 1;
    p = try_alloc(1, size);
    if (p == NULL)
        return error_no_memory(err, size, "sampling parameters");
    *p = *from;
    stops = (struct text *)(p + 1);
    biases = (struct logit_bias *)(stops + s->n_stops);
    constraint = (struct constraint *)(biases + s->n_biases);
    at = (char *)(constraint + (s->constraint != NULL));
    for (size_t i = 0; i < s->n_stops; i++) {
        memcpy(at, s->stops[i].text, s->stops[i].len);
        stops[i] = (struct text){.text = at, .len = s->stops[i].len};
        at += s->stops[i].len + 1;
    }
    if (s->n_biases > 0)
        memcpy(biases, s->biases, s->n_biases * sizeof(*biases));
    if (s->constraint != NULL) {
        memcpy(at, s->constraint->text, s->constraint->len);
        *constraint = (struct constraint){s->constraint->form, at, s->constraint->len};
        p->values.constraint = constraint;
    }
    p->values.stops = stops;
    p->values.biases = biases;
    *out = p;
    return STATUS_OK;
}

static int bias_by_id(const void *a, const void *b)
{
    const struct logit_bias *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

enum status logit_biases_sort(struct logit_bias *biases, size_t n, struct error *err)
{
    qsort(biases, n, sizeof(biases[0]), bias_by_id);
    for (size_t i = 1; i < n; i++) {
        if (biases[i].id == biases[i - 1].id)
            return error_field(err, "logit_bias", "names token %d twice", biases[i].id);
    }
    return STATUS_OK;
}

static bool is_given(const struct sampling_overrides *p, enum sampling_field field)
{
    return (p->given & (uint32_t)field) != 0;
}

static bool stops_are_equal(const struct sampling *a, const struct sampling *b)
{
    if (a->n_stops != b->n_stops)
        return false;
    for (size_t i = 0; i < a->n_stops; i++) {
        if (a->stops[i].len != b->stops[i].len ||
            memcmp(a->stops[i].text, b->stops[i].text, a->stops[i].len) != 0)
            return false;
    }
    return true;
}

static bool biases_are_equal(const struct sampling *a, const struct sampling *b)
{
    if (a->n_biases != b->n_biases)
        return false;
    for (size_t i = 0; i < a->n_biases; i++) {
        if (a->biases[i].id != b->biases[i].id || a->biases[i].bias != b->biases[i].bias)
            return false;
    }
    return true;
}

static bool constraints_are_equal(const struct constraint *a, const struct constraint *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return a->form == b->form && a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

bool sampling_overrides_is_equal(const struct sampling_overrides *a,
                                 const struct sampling_overrides *b)
{
    uint32_t given = a == NULL ? 0 : a->given;
    struct sampling x, y;

    if (given != (b == NULL ? 0 : b->given))
        return false;
    if (given == 0)
        return true;
    /* Applied to the same parameters, equal overrides give equal results. */
    sampling_init(&x);
    sampling_init(&y);
    sampling_overrides_apply(a, &x);
    sampling_overrides_apply(b, &y);
#define IS_EQUAL(name, ...) x.name == y.name &&
    return SAMPLING_FIELDS(IS_EQUAL) stops_are_equal(&x, &y) && biases_are_equal(&x, &y) &&
           constraints_are_equal(x.constraint, y.constraint);
#undef IS_EQUAL
}

void sampling_overrides_apply(const struct sampling_overrides *overrides, struct sampling *s)
{
    const struct sampling *v;

    if (overrides == NULL)
        return;
    v = &overrides->values;
#define APPLY(name, NAME, ...)                \
    if (is_given(overrides, SAMPLING_##NAME)) \
        s->name = v->name;
    SAMPLING_FIELDS(APPLY)
#undef APPLY
    s->has_seed |= is_given(overrides, SAMPLING_SEED);
    if (is_given(overrides, SAMPLING_BIASES)) {
        s->biases = v->biases;
        s->n_biases = v->n_biases;
    }
    if (is_given(overrides, SAMPLING_STOPS)) {
        s->stops = v->stops;
        s->n_stops = v->n_stops;
    }
    if (is_given(overrides, SAMPLING_CONSTRAINT))
        s->constraint = v->constraint;
}
