#include "server/config_file.h"

#include <ctype.h>
#include <cyaml/cyaml.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* --- the schema --- */

enum { MAX_TEXT = 4096, MAX_ENTRIES = 64 };

#define OPTIONAL_TEXT(member)                                                                     \
    CYAML_FIELD_STRING_PTR(#member, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_file, \
                           member, 0, MAX_TEXT)
#define OPTIONAL_LIST(member, entry)                                              \
    CYAML_FIELD_SEQUENCE_COUNT(#member, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, \
                               struct config_file, member, n_##member, entry, 0, MAX_ENTRIES)
#define MODEL_TEXT(member)                                                                   \
    CYAML_FIELD_STRING_PTR(#member, CYAML_FLAG_POINTER, struct config_file_model, member, 0, \
                           MAX_TEXT)

static const cyaml_schema_field_t model_fields[] = {
    MODEL_TEXT(name),
    MODEL_TEXT(path),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t model_entry = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct config_file_model, model_fields),
};
static const cyaml_schema_value_t listen_entry = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, MAX_TEXT),
};
static const cyaml_schema_field_t file_fields[] = {
    OPTIONAL_LIST(models, &model_entry),
    OPTIONAL_LIST(listen, &listen_entry),
    OPTIONAL_TEXT(http),
    OPTIONAL_TEXT(http_timeout),
    OPTIONAL_TEXT(backend),
    OPTIONAL_TEXT(fast_math),
    OPTIONAL_TEXT(threads),
    OPTIONAL_TEXT(kv_bytes),
    OPTIONAL_TEXT(kv_host_bytes),
    OPTIONAL_TEXT(kv),
    OPTIONAL_TEXT(prefix_cache),
    OPTIONAL_TEXT(speculate),
    OPTIONAL_TEXT(max_itl_ms),
    OPTIONAL_TEXT(max_conversations),
    OPTIONAL_TEXT(max_queue),
    OPTIONAL_TEXT(max_message_bytes),
    OPTIONAL_TEXT(ttl),
    OPTIONAL_TEXT(model_dir),
    OPTIONAL_TEXT(sequence_idle),
    OPTIONAL_TEXT(max_sessions),
    OPTIONAL_TEXT(session_ttl),
    OPTIONAL_TEXT(params_bytes),
    OPTIONAL_TEXT(drain_timeout),
    OPTIONAL_TEXT(log_level),
    CYAML_FIELD_END,
};
static const cyaml_schema_value_t file_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER_NULL, struct config_file, file_fields),
};

/* --- what libcyaml says --- */

/* It explains a failure in its log only: a line that says what, then, from the inside out, lines
 * that say where. The first of each is all that a user needs. */
struct complaint {
    char what[160], where[80]; /* "": nothing was said */
};

static void keep(char *out, size_t size, const char *line)
{
    size_t len = strnlen(line, size - 1); /* a longer one is cut */

    memcpy(out, line, len);
    out[len] = '\0';
}

static void PRINTF_LIKE(3, 0) note(cyaml_log_t level, void *arg, const char *fmt, va_list args)
{
    static const char before[] = "Load: ";
    struct complaint *complaint = arg;
    char text[256];
    char *line = text;
    size_t len;

    (void)level;
    (void)vsnprintf(text, sizeof(text), fmt, args); /* likewise */
    if (strncmp(line, before, sizeof(before) - 1) == 0)
        line += sizeof(before) - 1;
    len = strcspn(line, "\n");
    if (len > 0 && line[len - 1] == '.')
        len--;
    line[len] = '\0';
    if (strncmp(line, "  in ", 5) == 0) {
        if (complaint->where[0] == '\0')
            keep(complaint->where, sizeof(complaint->where), line + 2);
    } else if (complaint->what[0] == '\0' && strcmp(line, "Backtrace:") != 0) {
        keep(complaint->what, sizeof(complaint->what), line);
    }
}

/* A sentence's capital, but not an acronym's. */
static void lower_first(char *text)
{
    if (text[0] != '\0' && !isupper((unsigned char)text[1]))
        text[0] = (char)tolower((unsigned char)text[0]);
}

/* --- */

enum status config_file_open(struct config_file **out, const char *path, struct error *err)
{
    struct complaint complaint = {0};
    const cyaml_config_t how = {
        .log_fn = note,
        .log_ctx = &complaint,
        .log_level = CYAML_LOG_WARNING,
        .mem_fn = cyaml_mem,
        .flags = CYAML_CFG_NO_ALIAS,
    };
    cyaml_data_t *data = NULL;
    cyaml_err_t code;

    errno = 0;
    code = cyaml_load_file(path, &how, &file_schema, &data, NULL);
    if (code == CYAML_ERR_FILE_OPEN)
        return error_set(err, STATUS_INVALID, "%.100s: cannot be read: %s", path, strerror(errno));
    /* A warning is about something in the file that is not heeded: that is wrong, too. */
    if (code == CYAML_OK && complaint.what[0] == '\0') {
        *out = data;
        return STATUS_OK;
    }
    config_file_close(data);
    if (complaint.what[0] == '\0')
        keep(complaint.what, sizeof(complaint.what), cyaml_strerror(code));
    lower_first(complaint.what);
    return error_set(err, STATUS_INVALID, "%.100s: %s%s%s", path, complaint.what,
                     complaint.where[0] != '\0' ? ", " : "", complaint.where);
}

void config_file_close(struct config_file *f)
{
    const cyaml_config_t how = {.mem_fn = cyaml_mem};

    (void)cyaml_free(&how, &file_schema, f, 0); /* fails only for a wrong schema */
}
