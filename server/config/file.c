#include "server/config/file.h"

#include <assert.h>
#include <ctype.h>
#include <cyaml/cyaml.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* --- the schema --- */

enum { MAX_TEXT = 4096, MAX_ENTRIES = 64 };

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
static const cyaml_schema_value_t text_entry = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char *, 0, MAX_TEXT),
};
static const cyaml_schema_field_t lists[] = {
    OPTIONAL_LIST(models, &model_entry),
    OPTIONAL_LIST(listen, &text_entry),
    OPTIONAL_LIST(http_origin, &text_entry),
};

enum { N_LISTS = sizeof(lists) / sizeof(lists[0]) };

struct schema {
    cyaml_schema_field_t fields[N_LISTS + CONFIG_FILE_MAX_KEYS + 1];
    cyaml_schema_value_t file;
};

static void schema_make(struct schema *s, const char *const *keys, size_t n_keys)
{
    const cyaml_schema_field_t text = CYAML_FIELD_STRING_PTR(
        NULL, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct config_file, texts[0], 0, MAX_TEXT);
    const cyaml_schema_field_t end = CYAML_FIELD_END;
    const cyaml_schema_value_t file = {
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER_NULL, struct config_file, s->fields)};
    cyaml_schema_field_t *field = s->fields + N_LISTS;

    assert(n_keys <= CONFIG_FILE_MAX_KEYS);
    memcpy(s->fields, lists, sizeof(lists));
    for (size_t i = 0; i < n_keys; i++) {
        if (keys[i] == NULL)
            continue;
        *field = text;
        field->key = keys[i];
        field->data_offset = (uint32_t)(offsetof(struct config_file, texts) + i * sizeof(char *));
        field++;
    }
    *field = end;
    s->file = file;
}

/* --- libcyaml's errors --- */

/* libcyaml explains a failure in its log only: a line with the reason, then lines with the
 * location, innermost first. The first line of each is enough for a user. */
struct complaint {
    char what[160], where[80]; /* "": not logged */
};

static void config_file_keep(char *out, size_t size, const char *line)
{
    size_t len = strnlen(line, size - 1); /* truncated */

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
            config_file_keep(complaint->where, sizeof(complaint->where), line + 2);
    } else if (complaint->what[0] == '\0' && strcmp(line, "Backtrace:") != 0) {
        config_file_keep(complaint->what, sizeof(complaint->what), line);
    }
}

/* Lowers a sentence's first letter, but not an acronym's. */
static void lower_first(char *text)
{
    if (text[0] != '\0' && !isupper((unsigned char)text[1]))
        text[0] = (char)tolower((unsigned char)text[0]);
}

/* --- */

enum status config_file_open(struct config_file **out, const char *path, const char *const *keys,
                             size_t n_keys, struct error *err)
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
    struct schema schema;
    cyaml_err_t code;

    schema_make(&schema, keys, n_keys);
    errno = 0;
    code = cyaml_load_file(path, &how, &schema.file, &data, NULL);
    if (code == CYAML_ERR_FILE_OPEN)
        return error_set(err, STATUS_INVALID, "%.100s: cannot be read: %s", path, strerror(errno));
    /* A warning means that something in the file is ignored: that is an error, too. */
    if (code == CYAML_OK && complaint.what[0] == '\0') {
        *out = data;
        return STATUS_OK;
    }
    config_file_close(data, keys, n_keys);
    if (complaint.what[0] == '\0')
        config_file_keep(complaint.what, sizeof(complaint.what), cyaml_strerror(code));
    lower_first(complaint.what);
    return error_set(err, STATUS_INVALID, "%.100s: %s%s%s", path, complaint.what,
                     complaint.where[0] != '\0' ? ", " : "", complaint.where);
}

void config_file_close(struct config_file *f, const char *const *keys, size_t n_keys)
{
    const cyaml_config_t how = {.mem_fn = cyaml_mem};
    struct schema schema;

    schema_make(&schema, keys, n_keys);
    (void)cyaml_free(&how, &schema.file, f, 0); /* fails only for a wrong schema */
}
