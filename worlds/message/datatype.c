#include "worlds/message/datatype.h"

#include <string.h>

static bool datatype_is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

enum status datatype_parse(struct datatype *out, const char *text, struct error *err)
{
    struct datatype d = {0};
    size_t len = strcspn(text, ":");
    const char *at = text + len;

    if (datatype_is_word(text, len, "train"))
        d.fold = FOLD_TRAIN;
    else if (datatype_is_word(text, len, "valid"))
        d.fold = FOLD_VALID;
    else if (datatype_is_word(text, len, "test"))
        d.fold = FOLD_TEST;
    else
        goto bad;
    while (*at == ':') {
        at++;
        len = strcspn(at, ":");
        if (datatype_is_word(at, len, "stream"))
            d.stream = true;
        else if (datatype_is_word(at, len, "ordered"))
            d.ordered = true;
        else if (datatype_is_word(at, len, "evalmode"))
            d.evalmode = true;
        else
            goto bad;
        at += len;
    }
    *out = d;
    return STATUS_OK;
bad:
    return error_set(err, STATUS_INVALID,
                     "datatype '%.60s' must be train, valid or test, optionally followed by "
                     ":stream, :ordered or :evalmode",
                     text);
}
