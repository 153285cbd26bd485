/* Which known word a mistyped one may be meant to be: for "did you mean". */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

enum { SUGGEST_MAX_BYTES = 48 };

/* Begins with word NULL: nothing is known yet. */
struct suggest {
    const char *wanted, *word;
    size_t distance;
};

/* wanted is kept as long as s is used. */
void suggest_init(struct suggest *s, const char *wanted);
/* Keeps word if it is the nearest so far, and near enough: a third of its characters may be wrong,
 * missing, too many, or swapped with a neighbour. Words of more than SUGGEST_MAX_BYTES are not
 * compared. */
void suggest_try(struct suggest *s, const char *word);

#endif
