/* What the values of parleyd's options mean. A setter checks a text and puts it into the
 * configuration; the text is kept. */
#ifndef SERVER_CONFIG_SETTERS_H
#define SERVER_CONFIG_SETTERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct config;

/* Reads "on", "true" or "yes", and "off", "false" or "no". */
enum status config_switch(bool *out, const char *text, struct error *err) MUST_CHECK;

/* Whether the text may be the path of a model, or a name of model_name.h. A folder is looked at. */
bool config_is_model_path(const char *path);
/* Adds the model of the file's entry {name: NAME, path: PATH}. */
enum status config_add_model(struct config *c, const char *name, size_t name_len, const char *path,
                             struct error *err) MUST_CHECK;

enum status set_model(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_plugin(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_service(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_keys(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_tls_cert(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_tls_key(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_tls_client_ca(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_cluster_address(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_cluster_ca(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_backup(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_init_data(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_check_data(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_data(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_model_dir(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_listen(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_listen_admin(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_http(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_http_admin(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_http_origin(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_backend(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_offline(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_fast_math(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_kv_disk_dir(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_kv_host_bytes(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_kv(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_page(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_prefix_cache(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_chat_template(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_max_reply(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_pooling(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_speculate(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_attach(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_drain_timeout(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_unload_idle(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_unload_size(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_linger(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_log_level(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_file_path(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_check(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_print_config(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_version(struct config *c, const char *value, struct error *err) MUST_CHECK;
enum status set_help(struct config *c, const char *value, struct error *err) MUST_CHECK;

#endif
