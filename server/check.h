/* --check: tries what a start would need, without serving. A row of check.c's table adds a trial.
 */
#ifndef SERVER_CHECK_H
#define SERVER_CHECK_H

#include <stdint.h>

#include "base/status.h"

struct access;
struct config;
struct service_plan;

/* Opens every model, binds every address, and closes all of them again. An address that a running
 * parleyd has bound is no error. Looks at the folders of --data and --model-dir without a change in
 * them. */
enum status check_config(const struct config *config, struct error *err) MUST_CHECK;

/* Raises the limit of open files as far as the system allows. EXHAUSTED where the limit is then too
 * low for a start. */
enum status check_open_files(struct error *err) MUST_CHECK;

/* Checks what --data has, and counts its open conversations and completed turns. PRECONDITION while
 * a parleyd uses it. */
enum status check_data(const struct config *config, uint64_t *ret_conversations,
                       uint64_t *ret_turns, struct error *err) MUST_CHECK;

/* Makes the tables of --data in a PostgreSQL database. */
enum status check_init_data(const struct config *config, struct error *err) MUST_CHECK;
/* Copies what --data has to the file of --backup. */
enum status check_backup(const struct config *config, struct error *err) MUST_CHECK;

/* Checks what the plan of the chat service asks of the configuration; access: the keys, or NULL. */
enum status check_service(const struct service_plan *plan, const struct config *config,
                          const struct access *access, struct error *err) MUST_CHECK;

#endif
