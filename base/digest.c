#include "base/digest.h"

#include <string.h>

#include "base/env.h"

void digest_key_init(struct digest_key *key, const struct env *env)
{
    env->random(env->self, key->words, sizeof(key->words));
}

void digest_start(struct digest_writer *w, const struct digest_key *key)
{
    w->sip = sip_start(key->words[0], key->words[1]);
    w->sip.v1 ^= 0xee;
}

void digest_number(struct digest_writer *w, uint64_t number)
{
    sip_word(&w->sip, number);
}

void digest_bytes(struct digest_writer *w, const void *bytes, size_t len)
{
    struct sip sip = w->sip; /* in registers */
    const unsigned char *at = bytes;
    uint64_t word;

    sip_word(&sip, len);
    for (; len >= sizeof(word); len -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word)); /* little-endian, as all supported machines are */
        sip_word(&sip, word);
    }
    if (len > 0) {
        word = 0;
        memcpy(&word, at, len);
        sip_word(&sip, word);
    }
    w->sip = sip;
}

void digest_text(struct digest_writer *w, const char *text)
{
    digest_bytes(w, text, strlen(text));
}

struct digest digest_end(struct digest_writer *w)
{
    struct digest d;

    w->sip.v2 ^= 0xee;
    d.words[0] = sip_finish(&w->sip);
    w->sip.v1 ^= 0xdd;
    d.words[1] = sip_finish(&w->sip);
    return d;
}

void digest_join(struct digest *set, struct digest one)
{
    set->words[0] += one.words[0];
    set->words[1] += one.words[1];
}

bool digest_is_equal(const struct digest *a, const struct digest *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}
