/* The rounds of SipHash-2-4 (Aumasson, Bernstein, 2012). */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

#include <stdint.h>

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t sip_rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = sip_rotate(s->v1, 13) ^ s->v0;
    s->v3 = sip_rotate(s->v3, 16) ^ s->v2;
    s->v0 = sip_rotate(s->v0, 32) + s->v3;
    s->v2 += s->v1;
    s->v3 = sip_rotate(s->v3, 21) ^ s->v0;
    s->v1 = sip_rotate(s->v1, 17) ^ s->v2;
    s->v2 = sip_rotate(s->v2, 32);
}

static inline struct sip sip_start(uint64_t k0, uint64_t k1)
{
    return (struct sip){
        k0 ^ UINT64_C(0x736f6d6570736575),
        k1 ^ UINT64_C(0x646f72616e646f6d),
        k0 ^ UINT64_C(0x6c7967656e657261),
        k1 ^ UINT64_C(0x7465646279746573),
    };
}

static inline void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

/* The four rounds of the end. */
static inline uint64_t sip_finish(struct sip *s)
{
    for (int i = 0; i < 4; i++)
        sip_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
