#include "base/exact_sum.h"

#include <math.h>
#include <string.h>

enum {
    PIECE_BITS = 32,
    BIAS = 1075,               /* 2^-1075 is the weight of bit 0 */
    MAX_SINCE_CARRY = 1 << 29, /* each addition adds less than 2^33 to a piece */
    WHOLE_LIMIT = 1 << 24,     /* 2^38 additions of it do not overflow */
};

/* Brings all pieces but the highest into 0 … 2^32 - 1. */
static void carry(int64_t *pieces)
{
    for (int i = 0; i + 1 < EXACT_SUM_PIECES; i++) {
        int64_t low = pieces[i] & 0xFFFFFFFF;

        pieces[i + 1] += (pieces[i] - low) / ((int64_t)1 << PIECE_BITS);
        pieces[i] = low;
    }
}

static void add_bits(int64_t *pieces, double x)
{
    uint64_t bits, mantissa;
    unsigned exponent;
    __extension__ unsigned __int128 wide;
    int64_t low, middle, high;

    memcpy(&bits, &x, sizeof(bits));
    exponent = (unsigned)(bits >> 52 & 0x7FF);
    mantissa = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == 0)
        exponent = 1;
    else
        mantissa |= (uint64_t)1 << 52;
    wide = mantissa;
    wide <<= exponent % PIECE_BITS;
    low = (int64_t)((uint64_t)wide & 0xFFFFFFFF);
    middle = (int64_t)((uint64_t)wide >> 32);
    high = (int64_t)(uint64_t)(wide >> 64);
    pieces += exponent / PIECE_BITS;
    if (bits >> 63 != 0) {
        pieces[0] -= low;
        pieces[1] -= middle;
        pieces[2] -= high;
    } else {
        pieces[0] += low;
        pieces[1] += middle;
        pieces[2] += high;
    }
}

void exact_sum_add(struct exact_sum *s, double x)
{
    if (x > -WHOLE_LIMIT && x < WHOLE_LIMIT && x == (double)(int64_t)x) {
        s->whole += (int64_t)x;
        return;
    }
    if (!isfinite(x)) {
        s->special += x;
        return;
    }
    if (s->n_since_carry++ == MAX_SINCE_CARRY) {
        carry(s->pieces);
        s->n_since_carry = 1;
    }
    add_bits(s->pieces, x);
}

void exact_sum_merge(struct exact_sum *s, const struct exact_sum *other)
{
    struct exact_sum carried = *other;

    carry(s->pieces);
    carry(carried.pieces);
    for (int i = 0; i < EXACT_SUM_PIECES; i++)
        s->pieces[i] += carried.pieces[i];
    s->n_since_carry = 1;
    s->whole += carried.whole;
    s->special += carried.special;
}

double exact_sum_read(const struct exact_sum *s)
{
    int64_t pieces[EXACT_SUM_PIECES];
    int64_t whole = s->whole;
    uint64_t top = 0;
    int n_bits, i;
    int sign = 1;

    if (!(s->special == 0)) /* NaN too */
        return s->special;
    memcpy(pieces, s->pieces, sizeof(pieces));
    /* two halves, each of which a double holds exactly */
    add_bits(pieces, (double)(whole / ((int64_t)1 << 32)) * 4294967296.0);
    add_bits(pieces, (double)(whole % ((int64_t)1 << 32)));
    carry(pieces);
    if (pieces[EXACT_SUM_PIECES - 1] < 0) {
        sign = -1;
        for (i = 0; i < EXACT_SUM_PIECES; i++)
            pieces[i] = -pieces[i];
        carry(pieces);
    }
    for (i = EXACT_SUM_PIECES - 1; i > 0 && pieces[i] == 0;)
        i--;
    /* The leading 64 bits, the last of which also stands for all that follow: rounding them to a
     * double then rounds the whole, once. */
    top = (uint64_t)pieces[i];
    for (n_bits = 0; n_bits < 64 && top >> n_bits != 0;)
        n_bits++;
    while (n_bits < 64 && i > 0) {
        int room = 64 - n_bits < PIECE_BITS ? 64 - n_bits : PIECE_BITS;

        if (room == PIECE_BITS) {
            top = top << PIECE_BITS | (uint64_t)pieces[--i];
            n_bits += PIECE_BITS;
            continue;
        }
        top = top << room | (uint64_t)pieces[i - 1] >> (PIECE_BITS - room);
        top |= ((uint64_t)pieces[i - 1] & (((uint64_t)1 << (PIECE_BITS - room)) - 1)) != 0;
        for (int below = i - 2; below >= 0; below--)
            top |= pieces[below] != 0;
        return sign * ldexp((double)top, i * PIECE_BITS - room - BIAS);
    }
    for (int below = i - 1; below >= 0; below--)
        top |= pieces[below] != 0;
    return sign * ldexp((double)top, i * PIECE_BITS - BIAS);
}
