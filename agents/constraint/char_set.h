/* Sets of characters: ranges of code points, ascending, that neither overlap nor touch. */
#ifndef AGENTS_CONSTRAINT_CHAR_SET_H
#define AGENTS_CONSTRAINT_CHAR_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHAR_LAST = 0x10FFFF,
    CHAR_FIRST_SURROGATE = 0xD800, /* surrogates are no characters: no set has them */
    CHAR_LAST_SURROGATE = 0xDFFF,
    CHAR_SET_MAX = 2048, /* ranges of one set; \p{L} has 648 */
};

struct char_range {
    uint32_t first, last;
};

/* The ranges lie in memory of whoever made the set. */
struct char_set {
    struct char_range *ranges; /* [room], of which [n] are in use */
    size_t n, room;
};

/* False where the set would have too many ranges; it is then as before. */
bool char_set_add(struct char_set *s, uint32_t first, uint32_t last)
    __attribute__((warn_unused_result));
/* False likewise; s may then have some of the others. */
bool char_set_add_all(struct char_set *s, const struct char_set *other)
    __attribute__((warn_unused_result));
/* All characters that s lacks. False where that takes one range more than there is room for; s is
 * then of no use. */
bool char_set_invert(struct char_set *s) __attribute__((warn_unused_result));
bool char_set_has(const struct char_set *s, uint32_t code);

#endif
