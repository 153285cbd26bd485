/* A teacher as a participant of worlds: the one who speaks first and scores what it is answered. */
#ifndef WORLDS_TASK_H
#define WORLDS_TASK_H

#include "base/status.h"

struct participant;
struct teacher;

/* Takes the teacher, also on failure. Batches by length are dealt out by the teacher where it has
 * them. */
enum status task_open(struct participant **out, struct teacher *t, struct error *err) MUST_CHECK;
struct teacher *task_teacher(const struct participant *p);

#endif
