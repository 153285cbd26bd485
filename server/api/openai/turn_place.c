#include "server/api/openai/turn_place.h"

#include <stdio.h>
#include <string.h>

enum { HEX_CHARS = CONVERSATION_ID_CHARS - 1, TURN_CHARS = 8 };

/* Of the number's digits. Turns' numbers are smaller. */
#define NAMED_BIT (UINT32_C(1) << 31)

void turn_place_format(const struct turn_place *p, char out[TURN_PLACE_CHARS])
{
    const unsigned said = p->turn | (p->is_of_named ? NAMED_BIT : 0);

    conversation_id_format(&p->origin.conversation, out);
    if (p->origin.generation > 1)
        (void)snprintf(out + HEX_CHARS, TURN_PLACE_CHARS - HEX_CHARS, "%08xg%x", said,
                       (unsigned)p->origin.generation);
    else
        (void)snprintf(out + HEX_CHARS, TURN_PLACE_CHARS - HEX_CHARS, "%08x", said);
}

/* The value of at most 8 lower-case digits; *ret_n: how many there are. */
static uint32_t read_hex(const char *text, size_t *ret_n)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t value = 0;
    size_t n = 0;

    for (; n < TURN_CHARS && text[n] != '\0'; n++) {
        const char *digit = strchr(digits, text[n]);

        if (digit == NULL)
            break;
        value = value << 4 | (uint32_t)(digit - digits);
    }
    *ret_n = n;
    return value;
}

const char *turn_place_read(struct turn_place *out, const char *text)
{
    char hex[CONVERSATION_ID_CHARS] = "", spelled[TURN_PLACE_CHARS];
    const size_t len = strlen(text);
    struct turn_place p = {.origin.generation = 1};
    size_t at = HEX_CHARS, n;
    uint32_t said;

    memcpy(hex, text, len < HEX_CHARS ? len : HEX_CHARS);
    if (!conversation_id_parse(&p.origin.conversation, hex))
        return NULL;
    said = read_hex(text + at, &n);
    p.turn = said & ~NAMED_BIT;
    p.is_of_named = (said & NAMED_BIT) != 0;
    at += n;
    if (text[at] == 'g') {
        p.origin.generation = read_hex(text + at + 1, &n);
        at += 1 + n;
    }
    turn_place_format(&p, spelled); /* else another spelling would name the same turn */
    if (strlen(spelled) != at || memcmp(spelled, text, at) != 0)
        return NULL;
    *out = p;
    return text + at;
}

struct completed_turn *turn_place_find(const struct turn_place *p, const struct conversation *c)
{
    struct completed_turn *t = completed_turn_find(c->host.newest, p->turn);

    return t != NULL && t->origin.generation == p->origin.generation &&
                   memcmp(&t->origin.conversation, &p->origin.conversation,
                          sizeof(p->origin.conversation)) == 0
               ? t
               : NULL;
}
