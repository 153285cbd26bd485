/* A machine reads a number digit by digit. It compares the digits with those of the bounds, which
 * come in the same order once the number has as many before the point; keeps what its digits so far
 * lack to be a multiple; and counts the digits, so that they end. */
#include "agents/constraint/number_automaton.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DIGITS = 17,
    MAX_EXPONENT_DIGITS = 2,
    DOUBLE_DIGITS = 15, /* so many tell two doubles apart wherever they are */
};

enum number_phase {
    PHASE_BEGIN,
    PHASE_SIGN,
    PHASE_ZERO,
    PHASE_WHOLE,
    PHASE_POINT,
    PHASE_PLACES,
    PHASE_E,
    PHASE_E_SIGN,
    PHASE_E_DIGITS,
};

struct number_key {
    uint8_t phase, is_negative, is_zero, n_whole, n_places, n_exponent;
    int8_t to_near, to_far; /* how its digits so far compare with those of the bound that is nearer
                               to zero, and farther from it */
    /* The fewest further digits that make a multiple of all digits, and as a number, which. Digits
     * that lack the same are alike: beside 1000 there are 4 kinds of them, not 1000. Whole words,
     * since keys are compared by their bytes. */
    uint64_t n_lacking, lacking;
};

struct number_machine {
    const struct number_rules *rules;
    size_t max_whole, max_places;
    bool has_exponent;
};

/* --- decimals --- */

static void decimal_trim(struct decimal *d)
{
    size_t n_lead = 0;

    while (d->n_places > 0 && d->digits[d->n_digits - 1] == '0') {
        d->n_digits--;
        d->n_places--;
    }
    while (d->n_digits - n_lead > d->n_places + 1 && d->digits[n_lead] == '0')
        n_lead++;
    memmove(d->digits, d->digits + n_lead, d->n_digits - n_lead);
    d->n_digits -= n_lead;
}

/* text: as printf writes a number. */
static bool decimal_read(struct decimal *out, const char *text)
{
    long exponent = 0, n_before;
    struct decimal d = {.is_negative = *text == '-'};
    char digits[64];
    size_t n = 0;

    text += d.is_negative;
    n_before = -1;
    for (; *text != '\0' && *text != 'e' && n < sizeof(digits); text++)
        if (*text == '.')
            n_before = (long)n;
        else
            digits[n++] = *text;
    if (*text == 'e')
        exponent = strtol(text + 1, NULL, 10);
    n_before = (n_before < 0 ? (long)n : n_before) + exponent; /* digits before the point */
    if (n_before > NUMBER_MAX_PLACES || (long)n - n_before > NUMBER_MAX_PLACES)
        return false;
    if (n_before <= 0) {
        memset(d.digits, '0', (size_t)(1 - n_before));
        d.n_digits = (size_t)(1 - n_before);
    }
    memcpy(d.digits + d.n_digits, digits, n);
    d.n_digits += n;
    if (n_before > (long)n) {
        memset(d.digits + d.n_digits, '0', (size_t)(n_before - (long)n));
        d.n_digits += (size_t)(n_before - (long)n);
    }
    d.n_places = n_before >= (long)n ? 0 : (size_t)((long)n - n_before);
    decimal_trim(&d);
    d.is_negative = d.is_negative && !(d.n_digits == 1 && d.digits[0] == '0');
    *out = d;
    return true;
}

bool decimal_of_number(struct decimal *out, const json_t *number)
{
    char text[64];
    int n_digits = 15;

    if (json_is_integer(number)) {
        (void)snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(number));
        return decimal_read(out, text);
    }
    do /* the shortest that is the same number */
        (void)snprintf(text, sizeof(text), "%.*g", n_digits, json_real_value(number));
    while (n_digits++ < 17 && strtod(text, NULL) != json_real_value(number));
    return decimal_read(out, text);
}

/* Of what they are without a sign. */
static int decimal_compare_size(const struct decimal *a, const struct decimal *b)
{
    const size_t whole_a = a->n_digits - a->n_places, whole_b = b->n_digits - b->n_places,
                 n = a->n_digits < b->n_digits ? a->n_digits : b->n_digits;
    int order;

    if (whole_a != whole_b)
        return whole_a < whole_b ? -1 : 1;
    order = memcmp(a->digits, b->digits, n);
    return order != 0 ? order : (a->n_digits > b->n_digits) - (a->n_digits < b->n_digits);
}

static int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->is_negative != b->is_negative)
        return a->is_negative ? -1 : 1;
    return a->is_negative ? decimal_compare_size(b, a) : decimal_compare_size(a, b);
}

void number_bound_tighten(struct number_bound *b, const struct decimal *value, bool is_exclusive,
                          bool is_upper)
{
    const int order = b->is_set ? decimal_compare(value, &b->value) : 0;

    if (!b->is_set || (is_upper ? order < 0 : order > 0))
        *b = (struct number_bound){true, is_exclusive, *value};
    else if (order == 0)
        b->is_exclusive = b->is_exclusive || is_exclusive;
}

bool number_rules_allow(const struct number_rules *r, const struct decimal *d)
{
    const int to_least = r->least.is_set ? decimal_compare(d, &r->least.value) : 1,
              to_most = r->most.is_set ? decimal_compare(d, &r->most.value) : -1;
    uint64_t remainder = 0;

    if (to_least < 0 || (to_least == 0 && r->least.is_exclusive) || to_most > 0 ||
        (to_most == 0 && r->most.is_exclusive) || (r->is_integer && d->n_places > 0))
        return false;
    if (r->divisor == 0)
        return true;
    for (size_t i = 0; i < d->n_digits; i++)
        remainder = (remainder * 10 + (uint64_t)(d->digits[i] - '0')) % r->divisor;
    for (size_t i = d->n_places; i < r->divisor_places; i++)
        remainder = remainder * 10 % r->divisor;
    return remainder == 0 && d->n_places <= r->divisor_places;
}

/* --- the machine --- */

/* The bounds of numbers of this sign by their size: NULL if there is none. */
static const struct number_bound *near_bound(const struct number_machine *m, bool is_negative)
{
    const struct number_bound *b = is_negative ? &m->rules->most : &m->rules->least;

    return b->is_set && b->value.is_negative == is_negative ? b : NULL;
}

static const struct number_bound *far_bound(const struct number_machine *m, bool is_negative)
{
    const struct number_bound *b = is_negative ? &m->rules->least : &m->rules->most;

    return b->is_set && b->value.is_negative == is_negative ? b : NULL;
}

/* How the size so far compares with a bound's when one more digit is read: of those before the
 * point all are compared, since it is not known how many there will be. */
static int8_t compare_digit(const struct number_bound *b, int8_t so_far, size_t i, char digit)
{
    char other;

    if (b == NULL || so_far != 0)
        return so_far;
    other = i < b->value.n_digits ? b->value.digits[i] : '0';
    return (int8_t)((digit > other) - (digit < other));
}

/* All digits before the point were read. */
static int8_t compare_whole(const struct number_bound *b, int8_t so_far, size_t n_whole)
{
    size_t whole;

    if (b == NULL)
        return 0;
    whole = b->value.n_digits - b->value.n_places;
    return n_whole == whole ? so_far : n_whole < whole ? -1 : 1;
}

/* All digits were read. */
static int compare_end(const struct number_bound *b, int8_t so_far, size_t n_places)
{
    if (b == NULL || so_far != 0)
        return so_far;
    for (size_t i = b->value.n_digits - b->value.n_places + n_places; i < b->value.n_digits; i++)
        if (b->value.digits[i] != '0')
            return -1;
    return 0;
}

static void number_start(const void *self, void *ret_key)
{
    (void)self;
    *(struct number_key *)ret_key = (struct number_key){.phase = PHASE_BEGIN, .is_zero = 1};
}

/* With r for the digits so far, d for the next one and p for 10^n_lacking: r * p + lacking is a
 * multiple, and no digits that are fewer make one. So (10 * r + d) * 10^i + left is a multiple
 * where left is lacking * 10^(i + 1 - n_lacking) - d * 10^i, and has i digits from the first i on
 * where it is below 10^i. */
static void add_to_multiple(struct number_key *k, uint64_t divisor, char digit)
{
    uint64_t i = k->n_lacking > 0 ? k->n_lacking - 1 : 0, rest = k->lacking, power = 1, left;

    for (uint64_t n = 0; n < i; n++)
        power *= 10;
    for (;; i++) {
        const uint64_t taken = power % divisor * (uint64_t)(digit - '0') % divisor;

        left = (rest + divisor - taken) % divisor;
        if (left < power) /* at the latest where power is the divisor or more */
            break;
        rest = rest * 10 % divisor;
        power *= 10;
    }
    k->n_lacking = i;
    k->lacking = left;
}

/* Whether so many zeros make a multiple of all digits. */
static bool is_multiple(const struct number_key *k, uint64_t divisor, size_t n_zeros)
{
    uint64_t rest = k->lacking;

    for (size_t i = k->n_lacking; i < n_zeros; i++)
        rest = rest * 10 % divisor;
    return k->n_lacking <= n_zeros && rest == 0;
}

/* at_near, at_far: the places of the digits of both bounds that the digit is compared with. */
static void add_digit(const struct number_machine *m, struct number_key *k, size_t at_near,
                      size_t at_far, char digit)
{
    k->to_near = compare_digit(near_bound(m, k->is_negative), k->to_near, at_near, digit);
    k->to_far = compare_digit(far_bound(m, k->is_negative), k->to_far, at_far, digit);
    k->is_zero = k->is_zero && digit == '0';
    if (!k->is_zero && !m->rules->least.is_set && !m->rules->most.is_set)
        k->is_negative = false; /* both signs go on alike */
    if (m->rules->divisor != 0)
        add_to_multiple(k, m->rules->divisor, digit);
}

/* Digits before the point end: the counts of both are then the same for all numbers that compare
 * alike. */
static void end_whole(const struct number_machine *m, struct number_key *k)
{
    k->to_near = compare_whole(near_bound(m, k->is_negative), k->to_near, k->n_whole);
    k->to_far = compare_whole(far_bound(m, k->is_negative), k->to_far, k->n_whole);
}

static size_t bound_n_whole(const struct number_bound *b)
{
    return b != NULL ? b->value.n_digits - b->value.n_places : 0;
}

static bool step_digit(const struct number_machine *m, struct number_key *k, char digit)
{
    switch (k->phase) {
    case PHASE_BEGIN:
    case PHASE_SIGN:
        k->phase = digit == '0' ? PHASE_ZERO : PHASE_WHOLE;
        add_digit(m, k, 0, 0, digit);
        k->n_whole = 1;
        return true;
    case PHASE_WHOLE:
        if (k->n_whole == m->max_whole)
            return false;
        add_digit(m, k, k->n_whole, k->n_whole, digit);
        k->n_whole++;
        return true;
    case PHASE_POINT:
    case PHASE_PLACES:
        if (k->n_places == m->max_places)
            return false;
        k->phase = PHASE_PLACES;
        add_digit(m, k, bound_n_whole(near_bound(m, k->is_negative)) + k->n_places,
                  bound_n_whole(far_bound(m, k->is_negative)) + k->n_places, digit);
        k->n_places++;
        return true;
    case PHASE_E:
    case PHASE_E_SIGN:
    case PHASE_E_DIGITS:
        k->phase = PHASE_E_DIGITS;
        return k->n_exponent++ < MAX_EXPONENT_DIGITS;
    default:
        return false;
    }
}

static bool number_step(const void *self, const void *key, uint32_t code, void *ret_key)
{
    const struct number_machine *m = self;
    struct number_key *k = ret_key;

    memcpy(k, key, sizeof(*k));
    if (code >= '0' && code <= '9')
        return step_digit(m, k, (char)code);
    switch (code) {
    case '-':
        if (k->phase == PHASE_E)
            k->phase = PHASE_E_SIGN;
        else if (k->phase == PHASE_BEGIN)
            k->phase = PHASE_SIGN;
        else
            return false;
        k->is_negative = k->is_negative || k->phase == PHASE_SIGN;
        return true;
    case '+':
        if (k->phase != PHASE_E)
            return false;
        k->phase = PHASE_E_SIGN;
        return true;
    case '.':
        if ((k->phase != PHASE_ZERO && k->phase != PHASE_WHOLE) || m->max_places == 0)
            return false;
        end_whole(m, k);
        k->n_whole = 0;
        k->phase = PHASE_POINT;
        return true;
    case 'E':
    case 'e':
        if (!m->has_exponent ||
            (k->phase != PHASE_ZERO && k->phase != PHASE_WHOLE && k->phase != PHASE_PLACES))
            return false;
        k->phase = PHASE_E;
        k->n_whole = k->n_places = 0;
        return true;
    default:
        return false;
    }
}

/* Numbers of one sign are between the bounds of this sign; a bound of the other sign lets all of
 * them through, or none. Zero has either sign. */
static bool is_between(const struct number_machine *m, struct number_key k)
{
    const struct number_bound *near, *far, *least = &m->rules->least, *most = &m->rules->most;
    int to_near, to_far;

    if (k.phase == PHASE_ZERO || k.phase == PHASE_WHOLE)
        end_whole(m, &k);
    if (k.is_zero && k.is_negative) { /* -0 is 0: it is compared with no digits */
        const bool is_above =
            !least->is_set || least->value.is_negative ||
            (least->value.n_digits == 1 && least->value.digits[0] == '0' && !least->is_exclusive);
        const bool is_below =
            !most->is_set ||
            (!most->value.is_negative &&
             !(most->value.n_digits == 1 && most->value.digits[0] == '0' && most->is_exclusive));

        return is_above && is_below;
    }
    if (k.is_negative && least->is_set && !least->value.is_negative)
        return false;
    if (!k.is_negative && most->is_set && most->value.is_negative)
        return false;
    near = near_bound(m, k.is_negative);
    far = far_bound(m, k.is_negative);
    to_near = compare_end(near, k.to_near, k.n_places);
    to_far = compare_end(far, k.to_far, k.n_places);
    return (near == NULL || (near->is_exclusive ? to_near > 0 : to_near >= 0)) &&
           (far == NULL || (far->is_exclusive ? to_far < 0 : to_far <= 0));
}

static bool number_is_end(const void *self, const void *key)
{
    const struct number_machine *m = self;
    const struct number_key *k = key;
    const size_t n_places = m->rules->divisor_places;

    if (k->phase == PHASE_E_DIGITS)
        return true;
    if (k->phase != PHASE_ZERO && k->phase != PHASE_WHOLE && k->phase != PHASE_PLACES)
        return false;
    return is_multiple(k, m->rules->divisor, n_places > k->n_places ? n_places - k->n_places : 0) &&
           is_between(m, *k);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* How many places a number may have beside an exclusive bound: 15 digits where it is about as
 * large, so that one that differs from the bound is read as another double. Any number tells it
 * from 0. */
static size_t places_beside(const struct decimal *d)
{
    const size_t n_whole = d->n_digits - d->n_places;
    size_t n_zeros = 0;

    while (n_zeros < d->n_digits && d->digits[n_zeros] == '0')
        n_zeros++;
    if (n_zeros == d->n_digits)
        return SIZE_MAX;
    return n_zeros + DOUBLE_DIGITS > n_whole ? n_zeros + DOUBLE_DIGITS - n_whole : 0;
}

enum status number_to_json(struct automaton *out, const struct number_rules *r, size_t *work,
                           struct arena *arena, struct error *err)
{
    static const uint32_t symbols[] = {'+', ',', '-', '.', '/', '0', '1', '2',     '3', '4',
                                       '5', '6', '7', '8', '9', ':', 'E', 'E' + 1, 'e', 'e' + 1};
    const struct number_bound *bounds[] = {&r->least, &r->most};
    struct number_machine m = {
        .rules = r, .max_whole = MAX_DIGITS, .max_places = r->is_integer ? 0 : MAX_DIGITS};

    m.has_exponent =
        !r->is_integer && !r->is_plain && !r->least.is_set && !r->most.is_set && r->divisor == 0;
    if (r->least.is_set && r->most.is_set) /* no more than these have */
        m.max_whole = 0;
    for (size_t i = 0; i < 2; i++)
        if (bounds[i]->is_set) {
            const struct decimal *d = &bounds[i]->value;

            m.max_whole = larger(m.max_whole, d->n_digits - d->n_places);
            if (!r->is_integer)
                m.max_places = larger(m.max_places, d->n_places + 1);
        }
    for (size_t i = 0; i < 2; i++)
        if (bounds[i]->is_set && bounds[i]->is_exclusive && !r->is_integer &&
            places_beside(&bounds[i]->value) < m.max_places)
            m.max_places = places_beside(&bounds[i]->value);
    if (r->divisor != 0 && !r->is_integer && r->divisor_places < m.max_places)
        m.max_places = r->divisor_places;
    return automaton_of_machine(out,
                                &(struct machine){.symbols = symbols,
                                                  .n_symbols = sizeof(symbols) / sizeof(symbols[0]),
                                                  .last = 0x7F,
                                                  .key_bytes = sizeof(struct number_key),
                                                  .step_work = 1,
                                                  .work = work,
                                                  .start = number_start,
                                                  .step = number_step,
                                                  .is_end = number_is_end,
                                                  .self = &m},
                                AUTOMATON_MAX_STATES, arena, err);
}
