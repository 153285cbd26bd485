/* The names of a model's files where it is split: PREFIX-00001-of-00003.gguf, and the same with
 * .safetensors. */
#ifndef BASE_SHARD_NAME_H
#define BASE_SHARD_NAME_H

#include <stdbool.h>
#include <stddef.h>

struct shard_name {
    size_t prefix_len;  /* bytes of the name before -00001-of-00003 */
    unsigned number, n; /* from 1; of how many */
};

/* Whether name, with or without folders, is a shard's with this ending (".gguf"). */
bool shard_name_parse(struct shard_name *out, const char *name, const char *ending);

#endif
