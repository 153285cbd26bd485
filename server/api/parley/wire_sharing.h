/* Converts an access list of the wire. */
#ifndef SERVER_API_PARLEY_WIRE_SHARING_H
#define SERVER_API_PARLEY_WIRE_SHARING_H

#include "parley/v1/principal.pb-c.h"
#include "server/access/sharing.h"

/* Points into from; NULL: shared with nobody. */
void wire_sharing(struct access_sharing *out, const Parley__V1__AccessList *from);

#endif
