/* The reload of the configuration, which SIGHUP asks for: the configuration is read again, and the
 * options that need no restart take effect. A const table of rows says what a reload changes. All
 * rows check the new configuration before one applies it, so an error leaves everything as it was.
 * All functions are called on the loop. */
#ifndef SERVER_RELOAD_H
#define SERVER_RELOAD_H

#include <stddef.h>

#include "base/status.h"
#include "server/config/config.h"

struct buf;

/* Something that a reload changes. self is that of reload_init. */
struct reload_row {
    const char *name;
    /* Checks whether the configuration can be applied. The row may keep in self what it read from
     * files for that. NULL: the configuration can always be applied. */
    enum status (*check)(void *self, const struct config *to, struct error *err);
    /* Applies the configuration, which stays valid until the next apply. It cannot fail, and
     * follows check without a return to the loop. */
    void (*apply)(void *self, const struct config *to);
    /* Frees what check kept, because the configuration is not applied. It may come without a
     * check. NULL: check keeps nothing. */
    void (*drop)(void *self);
    /* Tells, after apply, which files of the row have changed: adds the names of their options to
     * names (reload_add_name), and " key=value" pairs about them to more. NULL: the row has no
     * files. */
    void (*say)(void *self, struct buf *names, struct buf *more);
};

/* Adds a name to a list of names, or leaves the name out if the list has no room. */
void reload_add_name(struct buf *names, const char *name);

struct reload {
    const struct reload_row *rows; /* [n_rows] */
    size_t n_rows;
    void *self; /* of the rows */
    const struct config *start;
    struct config current; /* owned */
    bool is_owned;         /* else current is a copy of the start's */
};

/* start and rows are borrowed until reload_deinit. */
void reload_init(struct reload *r, const struct config *start, const struct reload_row *rows,
                 size_t n_rows, void *self);
void reload_deinit(struct reload *r);

/* Reads the configuration again and applies it. Logs which options have changed, and which changed
 * ones wait for the next start. On failure nothing has changed, and the error names the file, the
 * line and the key. */
enum status reload_run(struct reload *r, struct error *err) MUST_CHECK;

#endif
