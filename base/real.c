/* Exponentials, logarithms, powers and angles in sums of two doubles. Arguments are reduced with
 * constants of three doubles, series are Taylor's; only terms whose error is far below a hundred
 * bits are computed in one double. */
#include "base/real.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* high + low, low being at most half a last place of high. */
struct real {
    double high, low;
};

/* Constants: ln 2, the first two of 42 bits, so that their products with an exponent are exact;
 * pi / 2. */
static const double real_ln2[3] = {0x1.62e42fefa38p-1, 0x1.ef35793c76p-45, 0x1.cc01f97b57a08p-87};
static const double real_half_pi[3] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                       -0x1.f1976b7ed8fbcp-110};

/* 1 / n! */
static const struct real real_factorials[28] = {
    {1.0, 0.0},
    {1.0, 0.0},
    {0x1p-1, 0.0},
    {0x1.5555555555555p-3, 0x1.5555555555555p-57},
    {0x1.5555555555555p-5, 0x1.5555555555555p-59},
    {0x1.1111111111111p-7, 0x1.1111111111111p-63},
    {0x1.6c16c16c16c17p-10, -0x1.f49f49f49f49fp-65},
    {0x1.a01a01a01a01ap-13, 0x1.a01a01a01a01ap-73},
    {0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-76},
    {0x1.71de3a556c734p-19, -0x1.c154f8ddc6c00p-73},
    {0x1.27e4fb7789f5cp-22, 0x1.cbbc05b4fa99ap-76},
    {0x1.ae64567f544e4p-26, -0x1.c062e06d1f209p-80},
    {0x1.1eed8eff8d898p-29, -0x1.2aec959e14c06p-83},
    {0x1.6124613a86d09p-33, 0x1.f28e0cc748ebep-87},
    {0x1.93974a8c07c9dp-37, 0x1.05d6f8a2efd1fp-92},
    {0x1.ae7f3e733b81fp-41, 0x1.1d8656b0ee8cbp-97},
    {0x1.ae7f3e733b81fp-45, 0x1.1d8656b0ee8cbp-101},
    {0x1.952c77030ad4ap-49, 0x1.ac981465ddc6cp-103},
    {0x1.6827863b97d97p-53, 0x1.eec01221a8b0bp-107},
    {0x1.2f49b46814157p-57, 0x1.2650f61dbdcb4p-112},
    {0x1.e542ba4020225p-62, 0x1.ea72b4afe3c2fp-120},
    {0x1.71b8ef6dcf572p-66, -0x1.d043ae40c4647p-120},
    {0x1.0ce396db7f853p-70, -0x1.aebcdbd20331cp-124},
    {0x1.761b41316381ap-75, -0x1.3423c7d91404fp-130},
    {0x1.f2cf01972f578p-80, -0x1.9ada5fcc1ab14p-135},
    {0x1.3f3ccdd165fa9p-84, -0x1.58ddadf344487p-139},
    {0x1.88e85fc6a4e5ap-89, -0x1.71c37ebd16540p-143},
    {0x1.d1ab1c2dccea3p-94, 0x1.054d0c78aea14p-149},
};

/* Adding it to a double below 2^51 rounds that to the nearest whole number, even. */
static const double real_magic = 0x1.8p52;

/* a + b, exactly; a's magnitude is not below b's, or a is 0. */
static struct real real_sum_of_ordered(double a, double b)
{
    double high = a + b;

    return (struct real){high, b - (high - a)};
}

/* a + b, exactly. */
static struct real real_sum(double a, double b)
{
    double high = a + b, of_b = high - a;

    return (struct real){high, (a - (high - of_b)) + (b - of_b)};
}

/* The upper 26 bits of a; |a| < 2^990. */
static double real_upper(double a)
{
    double t = a * 134217729.0; /* 2^27 + 1 */

    return t - (t - a);
}

/* a * b, exactly (T. J. Dekker, 1971). */
static struct real real_product(double a, double b)
{
    double high = a * b, a1 = real_upper(a), a2 = a - a1, b1 = real_upper(b), b2 = b - b1;

    return (struct real){high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
}

static struct real real_add(struct real a, struct real b)
{
    struct real high = real_sum(a.high, b.high), low = real_sum(a.low, b.low);

    high = real_sum_of_ordered(high.high, high.low + low.high);
    return real_sum_of_ordered(high.high, high.low + low.low);
}

static struct real real_multiply(struct real a, struct real b)
{
    struct real p = real_product(a.high, b.high);

    return real_sum_of_ordered(p.high, p.low + (a.high * b.low + a.low * b.high));
}

static struct real real_scale(struct real a, double by)
{
    struct real p = real_product(a.high, by);

    return real_sum_of_ordered(p.high, p.low + a.low * by);
}

static uint64_t real_bits(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* 2^e, e from -1022 to 1023 */
static double real_power_of_2(int e)
{
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* e^x - 1 for |x| below 0.35: a series for x / 256, squared eight times. */
static struct real real_expm1_small(struct real x)
{
    struct real r = {x.high * 0x1p-8, x.low * 0x1p-8}, s;
    const struct real *f = real_factorials;
    double rest = f[8].high;

    for (int n = 7; n >= 4; n--)
        rest = rest * r.high + f[n].high;
    s = real_add(f[3], real_product(rest, r.high));
    s = real_add(f[2], real_multiply(s, r));
    s = real_add(r, real_multiply(real_multiply(r, r), s));
    for (int i = 0; i < 8; i++) /* (1 + s)^2 - 1 */
        s = real_add((struct real){2.0 * s.high, 2.0 * s.low}, real_multiply(s, s));
    return s;
}

/* x = k ln 2 + the result; |x| < 2^10. */
static struct real real_reduce_exp(struct real x, double *ret_k)
{
    double k = (x.high * 0x1.71547652b82fep+0 + real_magic) - real_magic;
    struct real r = real_sum(x.high, -k * real_ln2[0]);

    r = real_add(r, real_sum(x.low, -k * real_ln2[1]));
    *ret_k = k;
    return real_add(r, real_product(-k, real_ln2[2]));
}

/* e^x, rounded. */
static double real_exp_of(struct real x)
{
    struct real s;
    double k;
    int half;

    if (x.high != x.high)
        return x.high;
    if (x.high > 709.79)
        return INFINITY;
    if (x.high < -708.4)
        return 0.0;
    s = real_add((struct real){1.0, 0.0}, real_expm1_small(real_reduce_exp(x, &k)));
    half = (int)k / 2; /* 2^k at once may overflow where the result does not */
    k = s.high * real_power_of_2(half) * real_power_of_2((int)k - half);
    return k < 0x1p-1022 ? 0.0 : k;
}

double real_exp(double x)
{
    return real_exp_of((struct real){x, 0.0});
}

/* x = 2^e * the result, from sqrt(1/2) to sqrt(2); x is positive and normal. */
static double real_fraction(double x, int *ret_e)
{
    uint64_t bits = real_bits(x);
    double m;

    *ret_e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        ++*ret_e;
    }
    return m;
}

/* A first guess by a series, then one of Newton's steps: log m = y + log(m e^-y). */
static struct real real_log_of(double x)
{
    int e;
    double m = real_fraction(x, &e), s = (m - 1.0) / (m + 1.0), s2 = s * s, y = 1.0 / 21.0, k;
    struct real z, sum;

    for (int n = 19; n >= 1; n -= 2)
        y = y * s2 + 1.0 / n;
    y *= 2.0 * s;
    k = (double)e;
    z = real_scale(real_expm1_small((struct real){-y, 0.0}), m);
    z = real_add((struct real){m - 1.0, 0.0}, z); /* m - 1 is exact */
    sum = real_sum(y, z.high - 0.5 * z.high * z.high);
    sum.low += z.low;
    sum = real_sum_of_ordered(sum.high, sum.low);
    if (e == 0)
        return sum;
    sum = real_add(sum, real_product(k, real_ln2[2]));
    return real_add(real_sum(k * real_ln2[0], k * real_ln2[1]), sum);
}

double real_log(double x)
{
    if (x != x || x == INFINITY)
        return x;
    if (x < 0x1p-1022)
        return x <= -0x1p-1022 ? NAN : -INFINITY;
    return real_log_of(x).high;
}

double real_pow(double a, double b)
{
    double magnitude = fabs(a), whole = floor(b), result, l;
    bool is_whole = whole == b, is_odd = is_whole && fabs(b) < 0x1p53 && fmod(b, 2.0) != 0.0;
    struct real power;

    if (b == 0.0 || a == 1.0)
        return 1.0;
    if (a != a || b != b)
        return NAN;
    if (fabs(b) == INFINITY)
        return magnitude == 1.0 ? 1.0 : (magnitude > 1.0) == (b > 0.0) ? INFINITY : 0.0;
    if (a < 0.0 && !is_whole && magnitude >= 0x1p-1022 && magnitude != INFINITY)
        return NAN;
    if (magnitude == 1.0) {
        result = 1.0; /* real_scale takes no factor as large as b may be */
    } else if (magnitude < 0x1p-1022 || magnitude == INFINITY) {
        result = (magnitude == INFINITY) == (b > 0.0) ? INFINITY : 0.0;
    } else {
        power = real_log_of(magnitude);
        l = power.high * b;
        if (fabs(l) > 800.0)
            result = l > 0.0 ? INFINITY : 0.0;
        else
            result = real_exp_of(real_scale(power, b));
    }
    return signbit(a) && is_odd ? -result : result;
}

/* x = k pi / 2 + the result; returns k mod 4. */
static int real_reduce_angle(double x, struct real *out)
{
    double k;

    if (fabs(x) > 0x1p51) {
        *out = (struct real){0.0, 0.0};
        return 0;
    }
    k = (x * 0x1.45f306dc9c883p-1 + real_magic) - real_magic;
    *out = real_sum(x, 0.0);
    for (int i = 0; i < 3; i++)
        *out = real_add(*out, real_product(-k, real_half_pi[i]));
    return (int)((int64_t)k & 3);
}

/* The series of sine (odd) or cosine, for |x| up to pi / 4, from the term of x^27 or x^26 down:
 * those from x^13 or x^12 on in one double. */
static struct real real_turn(struct real x, bool is_sine)
{
    const struct real *f = real_factorials;
    struct real x2 = real_multiply(x, x), sum;
    int n = is_sine ? 27 : 26;
    double rest = f[n].high;

    for (n -= 2; n >= (is_sine ? 13 : 12); n -= 2)
        rest = f[n].high - rest * x2.high;
    sum = (struct real){-rest, 0.0};
    for (; n >= 2; n -= 2) {
        sum = real_add(f[n], real_multiply(sum, x2));
        sum = (struct real){-sum.high, -sum.low};
    }
    /* 1 - x^2 / 2! … or x - x^3 / 3! … */
    sum = real_multiply(sum, x2);
    return is_sine ? real_add(x, real_multiply(sum, x)) : real_add((struct real){1.0, 0.0}, sum);
}

/* The sine of x plus quarters of a turn. */
static double real_sine_after(double x, int quarters)
{
    struct real r;

    if (x != x || fabs(x) == INFINITY)
        return NAN;
    quarters += real_reduce_angle(x, &r);
    r = real_turn(r, (quarters & 1) == 0);
    return (quarters & 2) == 0 ? r.high : -r.high;
}

/* Whether first + rest has the same nearest double wherever rest is within 2^-48 of itself, as
 * nearly always: two doubles are then enough. */
static bool real_is_settled(double first, double rest, double *out)
{
    *out = first + rest * (1.0 - 0x1p-48);
    return *out == first + rest * (1.0 + 0x1p-48);
}

enum { SMALL_TERMS = 7 /* of the series for angles up to 1/4 */ };

double real_sin(double x)
{
    const struct real *f = real_factorials;
    double x2 = x * x, rest = f[2 * SMALL_TERMS + 1].high, sine;

    if (fabs(x) < 0x1p-30)
        return x; /* x^3 / 6 is below half a last place */
    for (int n = 2 * SMALL_TERMS - 1; n >= 3; n -= 2)
        rest = f[n].high - rest * x2;
    return fabs(x) < 0.25 && real_is_settled(x, -rest * x2 * x, &sine) ? sine
                                                                       : real_sine_after(x, 0);
}

double real_cos(double x)
{
    const struct real *f = real_factorials;
    double x2 = x * x, rest = f[2 * SMALL_TERMS].high, cosine;

    for (int n = 2 * SMALL_TERMS - 2; n >= 2; n -= 2)
        rest = f[n].high - rest * x2;
    return fabs(x) < 0.25 && real_is_settled(1.0, -rest * x2, &cosine) ? cosine
                                                                       : real_sine_after(x, 1);
}

/* The series of G. Marsaglia's cPhi (2004): all its terms have one sign. */
double real_normal_below(double x)
{
    double sum = x, term = x, last = 0.0;

    if (!(fabs(x) <= 9.0))
        return x < 0.0 ? 0.0 : x > 0.0 ? 1.0 : x;
    for (int n = 3; sum != last; n += 2) {
        last = sum;
        term *= x * x / n;
        sum += term;
    }
    return 0.5 + sum * real_exp(-0.5 * x * x) * 0.3989422804014327; /* 1 / sqrt(2 pi) */
}

/* Whether all numbers within 2^-40 of x have the same nearest float, which is written: then it is
 * that of the number which the C library computed x for. */
static bool real_decides_float(double x, float *out)
{
    *out = (float)(x * (1.0 - 0x1p-40));
    return *out == (float)(x * (1.0 + 0x1p-40));
}

float real_exp_float(double x)
{
    float quick;

    return real_decides_float(exp(x), &quick) ? quick : (float)real_exp(x);
}

float real_cos_float(double factor, double x)
{
    float quick;

    return real_decides_float(factor * cos(x), &quick) ? quick : (float)(factor * real_cos(x));
}

float real_sin_float(double factor, double x)
{
    float quick;

    return real_decides_float(factor * sin(x), &quick) ? quick : (float)(factor * real_sin(x));
}
