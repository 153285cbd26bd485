/* Names of models that are no paths: "hf:OWNER/REPO[:PART]", a repository of the Hugging Face hub,
 * and "ollama:[[HOST/]NAMESPACE/]NAME[:TAG]", a model of Ollama's store. Any thread. */
#ifndef BASE_FETCH_MODEL_NAME_H
#define BASE_FETCH_MODEL_NAME_H

#include <stdbool.h>

#include "base/status.h"

enum { MODEL_NAME_PART_MAX = 200, MODEL_NAME_WORD_MAX = 96, MODEL_NAME_SERVED_MAX = 63 };

struct model_name {
    enum model_name_kind { MODEL_NAME_HUB, MODEL_NAME_OLLAMA } kind;
    /* Of the hub: the owner, the repository, and which of its files are meant: a quantization
     * ("Q4_K_M"), a file ("x/y.gguf"), "safetensors", or "", the usual ones. Of Ollama: the
     * namespace, the name and the tag. All words are safe as names of files. */
    char owner[MODEL_NAME_WORD_MAX + 1], repo[MODEL_NAME_WORD_MAX + 1];
    char part[MODEL_NAME_PART_MAX + 1];
    char host[MODEL_NAME_WORD_MAX + 1]; /* of Ollama; "" of the hub */
};

/* Whether the text begins as such a name does; else it is a path. */
bool model_name_is_one(const char *text);
/* INVALID says how such a name is written. */
enum status model_name_parse(struct model_name *out, const char *text,
                             struct error *err) MUST_CHECK;

/* A name under which the model of a path, or of such a name, is served where none is given: the
 * file's, without folder, ".gguf" and "-00001-of-00003"; the folder's; the repository's without
 * "-GGUF"; Ollama's name and tag. Other characters than letters, digits, '.', '_' and '-' become
 * '-'. */
void model_name_served(char out[MODEL_NAME_SERVED_MAX + 1], const char *text);

#endif
