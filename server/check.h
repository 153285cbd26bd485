/* --check: tries what a start would need, without serving. A row of check.c's table adds a trial.
 */
#ifndef SERVER_CHECK_H
#define SERVER_CHECK_H

#include <stdint.h>

#include "base/status.h"

struct config;

/* Opens every model and binds every address, and gives them back; an address that a running parleyd
 * has is fine. Looks at the folders of --data and --model-dir, and changes nothing in them. */
enum status check_config(const struct config *config, struct error *err) MUST_CHECK;

/* Raises the limit of open files as far as it goes. EXHAUSTED: that is too low to start. */
enum status check_open_files(struct error *err) MUST_CHECK;

/* What --data has is sound; how many open conversations and completed turns it has. PRECONDITION
 * while a parleyd has it. */
enum status check_data(const struct config *config, uint64_t *ret_conversations,
                       uint64_t *ret_turns, struct error *err) MUST_CHECK;

/* Makes the tables of --data in a PostgreSQL database. */
enum status check_init_data(const struct config *config, struct error *err) MUST_CHECK;
/* Copies what --data has to the file of --backup. */
enum status check_backup(const struct config *config, struct error *err) MUST_CHECK;

#endif
