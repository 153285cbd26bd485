#include "base/fetch/find.h"

#include "base/alloc.h"
#include "base/fetch/hub_cache.h"
#include "base/fetch/model_name.h"
#include "base/fetch/ollama_store.h"

enum status fetch_find(char **out, const char *text, struct error *err)
{
    struct model_name name;

    if (!model_name_is_one(text)) {
        *out = xstrdup(text);
        return STATUS_OK;
    }
    if (model_name_parse(&name, text, err) != STATUS_OK)
        return err->status;
    if (name.kind == MODEL_NAME_OLLAMA)
        return ollama_store_find(out, &name, err);
    if (hub_cache_find(out, &name, err) == STATUS_OK)
        return STATUS_OK;
    if (err->status == STATUS_NOT_FOUND)
        (void)error_set(err, err->status, "%s; 'parley pull' fetches it", err->text);
    return err->status;
}
