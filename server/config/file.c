/* Walks the tree that libyaml makes of the file, and hands on each key and value with its line.
 * Whatever is not one flat mapping of texts is refused at its line. */
#include "server/config/file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/whole_file.h"

enum { FILE_MAX_BYTES = 1 << 20, LIST_MAX = 1024 };

struct config_file {
    char *path;
    yaml_document_t document;
    bool is_loaded; /* else document holds nothing */
};

/* --- reading --- */

static enum status config_file_fault(const char *path, const yaml_parser_t *parser,
                                     struct error *err)
{
    return error_set(err, STATUS_INVALID, "%.100s:%zu: no YAML: %s", path,
                     parser->problem_mark.line + 1,
                     parser->problem != NULL ? parser->problem : "it cannot be read");
}

/* A second document would be ignored: it is an error. */
static enum status config_file_ends(struct config_file *f, yaml_parser_t *parser, struct error *err)
{
    yaml_document_t more;
    enum status rc = STATUS_OK;

    if (yaml_parser_load(parser, &more) == 0)
        return config_file_fault(f->path, parser, err);
    if (yaml_document_get_root_node(&more) != NULL)
        rc =
            error_set(err, STATUS_INVALID, "%.100s:%zu: a second document begins here, one is read",
                      f->path, more.start_mark.line + 1);
    yaml_document_delete(&more);
    return rc;
}

static enum status config_file_parse(struct config_file *f, const char *text, size_t len,
                                     struct error *err)
{
    yaml_parser_t parser;
    enum status rc = STATUS_OK;

    if (yaml_parser_initialize(&parser) == 0)
        return error_no_memory(err, sizeof(parser), "the configuration file");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    f->is_loaded = yaml_parser_load(&parser, &f->document) != 0;
    if (!f->is_loaded)
        rc = config_file_fault(f->path, &parser, err);
    else if (yaml_document_get_root_node(&f->document) != NULL)
        rc = config_file_ends(f, &parser, err);
    yaml_parser_delete(&parser);
    return rc;
}

enum status config_file_open(struct config_file **out, const char *path, struct error *err)
{
    struct config_file *f = xalloc(sizeof(*f));
    char *text = xalloc(FILE_MAX_BYTES + 1);
    size_t len = 0;
    enum status rc;

    *f = (struct config_file){.path = xstrdup(path)};
    rc = whole_file_read(text, FILE_MAX_BYTES, &len, path, err);
    if (rc == STATUS_OK)
        rc = config_file_parse(f, text, len, err);
    if (rc == STATUS_OK) {
        *out = f;
        f = NULL; /* given away */
    }
    free(text);
    config_file_close(f);
    return rc;
}

void config_file_close(struct config_file *f)
{
    if (f == NULL)
        return;
    if (f->is_loaded)
        yaml_document_delete(&f->document);
    free(f->path);
    free(f);
}

/* --- its values --- */

/* A walk over the file's keys. */
struct config_walk {
    struct config_file *file;
    config_file_fn on_value;
    void *arg;
    const char *key;
    bool is_in_list;
    struct error *err;
};

static yaml_node_t *node_at(struct config_walk *w, int index)
{
    return yaml_document_get_node(&w->file->document, index);
}

static unsigned line_of(const yaml_node_t *node)
{
    return (unsigned)node->start_mark.line + 1;
}

static enum status config_walk_wrong(struct config_walk *w, const yaml_node_t *node,
                                     const char *wants)
{
    return error_set(w->err, STATUS_INVALID, "%.100s:%u: %s%stakes %s", w->file->path,
                     line_of(node), w->key != NULL ? w->key : "the file",
                     w->key != NULL ? ": " : " ", wants);
}

/* The text of a scalar; NULL for other nodes, and for text with a NUL inside. */
static const char *text_of(const yaml_node_t *node)
{
    const char *text;

    if (node->type != YAML_SCALAR_NODE)
        return NULL;
    text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

static enum status config_walk_value(struct config_walk *w, const yaml_node_t *node,
                                     const char *name, const char *text)
{
    const struct config_file_value value = {.key = w->key,
                                            .name = name,
                                            .text = text,
                                            .line = line_of(node),
                                            .is_entry = w->is_in_list};

    if (w->on_value(w->arg, &value, w->err) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(w->err, "%.100s:%u: %s", w->file->path, value.line, w->key);
}

/* {name: …, path: …} */
static enum status config_walk_pair(struct config_walk *w, const yaml_node_t *node)
{
    const char *name = NULL, *path = NULL;

    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
         p++) {
        const char *key = text_of(node_at(w, p->key)), *text = text_of(node_at(w, p->value));
        const char **part = key == NULL                ? NULL
                            : strcmp(key, "name") == 0 ? &name
                            : strcmp(key, "path") == 0 ? &path
                                                       : NULL;

        if (part == NULL || text == NULL || *part != NULL)
            return config_walk_wrong(w, node_at(w, p->key), "a text, or name and path once each");
        *part = text;
    }
    if (name == NULL || path == NULL)
        return config_walk_wrong(w, node, "a text, or both name and path");
    return config_walk_value(w, node, name, path);
}

static enum status config_walk_entry(struct config_walk *w, const yaml_node_t *node)
{
    const char *text = text_of(node);

    if (node->type == YAML_MAPPING_NODE)
        return config_walk_pair(w, node);
    if (text == NULL)
        return config_walk_wrong(w, node, "a text");
    return config_walk_value(w, node, NULL, text);
}

static enum status config_walk_list(struct config_walk *w, const yaml_node_t *node)
{
    yaml_node_item_t *item = node->data.sequence.items.start;
    enum status rc = STATUS_OK;

    if (node->data.sequence.items.top - item > LIST_MAX)
        return config_walk_wrong(w, node, "a shorter list");
    for (; item < node->data.sequence.items.top && rc == STATUS_OK; item++)
        rc = config_walk_entry(w, node_at(w, *item));
    return rc;
}

static enum status config_walk_key(struct config_walk *w, const yaml_node_pair_t *pair,
                                   config_file_key_fn on_key)
{
    const yaml_node_t *key = node_at(w, pair->key), *value = node_at(w, pair->value);

    w->key = NULL;
    w->is_in_list = value->type == YAML_SEQUENCE_NODE;
    if (text_of(key) == NULL)
        return config_walk_wrong(w, key, "keys that are texts");
    if (on_key(w->arg, text_of(key), w->err) != STATUS_OK)
        return error_prefix(w->err, "%.100s:%u", w->file->path, line_of(key));
    w->key = text_of(key);
    return w->is_in_list ? config_walk_list(w, value) : config_walk_entry(w, value);
}

enum status config_file_each(struct config_file *f, config_file_key_fn on_key,
                             config_file_fn on_value, void *arg, struct error *err)
{
    struct config_walk w = {.file = f, .on_value = on_value, .arg = arg, .err = err};
    const yaml_node_t *root = yaml_document_get_root_node(&f->document);
    enum status rc = STATUS_OK;

    if (root == NULL)
        return STATUS_OK;
    if (root->type != YAML_MAPPING_NODE)
        return config_walk_wrong(&w, root, "KEY: VALUE on each line");
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start;
         p < root->data.mapping.pairs.top && rc == STATUS_OK; p++)
        rc = config_walk_key(&w, p, on_key);
    return rc;
}
