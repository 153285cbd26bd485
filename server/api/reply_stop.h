/* Which of its request's stop texts has ended a reply. Loop. */
#ifndef SERVER_API_REPLY_STOP_H
#define SERVER_API_REPLY_STOP_H

struct choice;
struct generation;
struct text;

/* The stop text that ended the reply of c, which is done; NULL: none did. The stop's tokens belong
 * to the reply, its text does not. Without memory to tell, it is an end like any other. The text is
 * that of the turn's request. */
const struct text *reply_stop(const struct generation *g, const struct choice *c);

#endif
