/* Calls for things that one daemon has as a whole, of those that share a journal: such a call is
 * passed on to that daemon, once, whatever form its method has. Loop.
 *
 * A file of such a service defines PARLEY_PLACE, an enum journal_place, and its table by
 * PLACED_TABLE in place of PARLEY_TABLE. */
#ifndef SERVER_API_PARLEY_PLACED_CALL_H
#define SERVER_API_PARLEY_PLACED_CALL_H

#include "server/api/parley/methods.h"
#include "server/journal/store.h"

#define PLACED_TABLE(table, METHODS) CALL_TABLE_BY(table, METHODS, PLACED_FUNCTION, PARLEY_ROW)
#define PLACED_FUNCTION(form, access, path, request, response, f)              \
    CALL_START_##form(f##_here, parley__v1__##request, parley__v1__##response, \
                      f) static void f##_start(struct call *call)              \
    {                                                                          \
        placed_call_start(call, PARLEY_PLACE, f##_here);                       \
    }

/* Calls here, perhaps later, if the place is at this daemon, and else has the daemon answer that
 * has the place. The call has no handler. */
void placed_call_start(struct call *call, enum journal_place place,
                       void (*here)(struct call *call));

#endif
