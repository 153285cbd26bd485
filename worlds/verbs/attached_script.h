/* The script of a world whose code runs in an attached worker (the Python package's @parley.world
 * on a class). Each episode of each slot is a conversation with the worker, whose system prompt is
 * {"argument": TEXT, "script": true}. A message is an object:
 *
 *   {"do": "parley"}                 a parley begins
 *   {"who": NAME, "act": ACT}        what the member that was asked has said
 *
 * The reply's first line is an object; each further line is an act that the code has made.
 *
 *   {"hears": [[NAME, WHAT]…], "then": "ask", "who": NAME}       that member speaks next
 *   {"hears": [[NAME, WHAT]…], "then": "parley"|"episode"|"world"}  what ends with this parley
 *
 * hears says in order which member observes what: WHAT is the name of a member, for what it has
 * said last, or the number of one of the acts below, from 0. With "whole": true in the system
 * prompt it is always such a number: server/service/script.c is the other one that plays them. */
#ifndef WORLDS_VERBS_ATTACHED_SCRIPT_H
#define WORLDS_VERBS_ATTACHED_SCRIPT_H

#include <stddef.h>

#include "base/status.h"
#include "client/cli/connection.h"
#include "worlds/world/config.h"
#include "worlds/world/script.h"

struct attached_script;

/* name: of the worker's agent, and behind a colon the world's argument. Borrows connection and
 * graph, which has the members' names. */
enum status attached_script_open(struct attached_script **out, const char *name,
                                 const struct connection_options *connection,
                                 const struct world_graph *graph, size_t n_members,
                                 struct error *err) MUST_CHECK;
/* s may be NULL. No world may use it. */
void attached_script_close(struct attached_script *s);
/* Valid as long as s is. */
const struct world_script *attached_script_of(const struct attached_script *s);

#endif
