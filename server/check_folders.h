/* The folders of --data and --model-dir, looked at without a change in them, also while a daemon
 * uses them. What a start would refuse is an error; what will cause trouble later is logged as a
 * warning. */
#ifndef SERVER_CHECK_FOLDERS_H
#define SERVER_CHECK_FOLDERS_H

#include "base/status.h"

struct config;

enum status check_data_folder(const struct config *config, struct error *err) MUST_CHECK;
enum status check_model_dir(const struct config *config, struct error *err) MUST_CHECK;

#endif
