#include "server/api/parley/wire_sharing.h"

void wire_sharing(struct access_sharing *out, const Parley__V1__AccessList *from)
{
    *out = (struct access_sharing){0};
    if (from == NULL)
        return;
    out->readers = (const char *const *)from->readers;
    out->writers = (const char *const *)from->writers;
    out->n_readers = from->n_readers;
    out->n_writers = from->n_writers;
}
