/* SIGHUP: the configuration is read again, and options that need no restart take effect. All rows
 * check it before any changes, so an error leaves everything unchanged. Loop. */
#ifndef SERVER_RELOAD_H
#define SERVER_RELOAD_H

#include <stddef.h>

#include "base/status.h"
#include "server/config/config.h"

struct buf;

/* A part of the daemon that a reload changes: a row of a const table. */
struct reload_row {
    const char *name;
    /* Whether to can be applied; may keep in self what it read for it. NULL: always. */
    enum status (*check)(void *self, const struct config *to, struct error *err);
    /* Cannot fail; follows check at once. to stays until the next apply. */
    void (*apply)(void *self, const struct config *to);
    /* Instead of apply, after its own check or none: frees what check kept. NULL: nothing. */
    void (*drop)(void *self);
    /* Behind apply, what has changed in the files that it read: their options' names
     * (reload_add_name), and more of them, as " key=value". NULL: nothing. */
    void (*say)(void *self, struct buf *names, struct buf *more);
};

/* Adds a name to a list; it is left out where there is no room. */
void reload_add_name(struct buf *names, const char *name);

struct reload {
    const struct reload_row *rows; /* [n_rows] */
    size_t n_rows;
    void *self; /* of the rows */
    const struct config *start;
    struct config current; /* owned */
    bool is_owned;         /* else current is a copy of the start's */
};

/* start is borrowed until reload_deinit. */
void reload_init(struct reload *r, const struct config *start, const struct reload_row *rows,
                 size_t n_rows, void *self);
void reload_deinit(struct reload *r);

/* Reads again, and applies. Logs what changed, and what waits for the next start. The error names
 * the file, the line and the key; everything is then as before. */
enum status reload_run(struct reload *r, struct error *err) MUST_CHECK;

#endif
