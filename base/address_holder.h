/* Which process listens at an address that cannot be had. */
#ifndef BASE_ADDRESS_HOLDER_H
#define BASE_ADDRESS_HOLDER_H

#include <stdbool.h>

struct address_holder {
    long pid;
    char name[32]; /* of its program, as ps shows it */
};

/* False: nobody, or /proc does not show this process who: it is another user's. Any thread. */
bool address_holder_find(struct address_holder *out, const char *address);

/* Whether its program has the name of this one. */
bool address_holder_is_like_us(const struct address_holder *h);

#endif
