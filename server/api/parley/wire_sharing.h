/* Reads whom a thing is shared with. */
#ifndef SERVER_API_PARLEY_WIRE_SHARING_H
#define SERVER_API_PARLEY_WIRE_SHARING_H

#include "parley/v1/principal.pb-c.h"
#include "server/access/sharing.h"

/* Reads a list, which out then borrows. from NULL means that the thing is shared with nobody. */
void wire_sharing(struct access_sharing *out, const Parley__V1__AccessList *from);

#endif
