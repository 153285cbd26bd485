/* All parts of the daemon, and the walks over them. The order is that of SERVER_PARTS: init, keep,
 * drain and end go from the first row to the last, stop and deinit from the last to the first. */
#ifndef SERVER_PART_LIST_H
#define SERVER_PART_LIST_H

#include "server/loop_alarm.h"
#include "server/part.h"
#include "server/server.h"

#define SERVER_PART_NUMBER(name, type) PART_##name,
enum { SERVER_PARTS(SERVER_PART_NUMBER) N_PARTS };

struct part_list {
    struct {
        void *self; /* owned */
        struct loop_alarm alarm;
        bool has_stopped;
    } rows[N_PARTS];
};

/* Allocates all registries, sets their pointers in host's server, and makes them. */
void part_list_init(struct part_list *list, struct part_host *host);
/* Each of these calls the function of its name of every part (part.h says what the functions do).
 */
void part_list_keep(struct part_list *list, struct part_host *host);
void part_list_configure(struct part_list *list, const struct config *to);
void part_list_drain(struct part_list *list);
/* Also drains the parts that were not drained before. */
void part_list_end(struct part_list *list);
/* Return whether all parts are idle, and whether all have kept what they keep. */
bool part_list_are_idle(const struct part_list *list);
bool part_list_are_kept(struct part_list *list);
/* Stops each part once the parts behind it have stopped. Returns whether all have stopped. */
bool part_list_stop(struct part_list *list);
/* Closes the alarms, in the loop's next iteration. */
void part_list_close(struct part_list *list);
/* Frees the parts, once the loop has ended. */
void part_list_deinit(struct part_list *list);

#endif
