#include "agents/lm/load_fault.h"

#include <string.h>

/* What to do by part: about what is not supported, and about what is wrong or absent. */
static const struct {
    const char *name, *unsupported, *wrong;
} parts[] = {
    [MODEL_CONFIG] = {"config",
                      "take a model that runs here: docs/serving.md lists the architectures",
                      "fetch the model again, or convert it again"},
    [MODEL_TOKENIZER] = {"tokenizer",
                         "take a GGUF file of this model, if there is one, else another model",
                         "fetch the model with its tokenizer again, or convert it again"},
    [MODEL_TEMPLATE] = {"template", "give another by parleyd --chat-template FILE",
                        "give another by parleyd --chat-template FILE"},
    [MODEL_WEIGHTS] =
        {"weights", "take another file of this model, from another converter or with other types",
         "fetch the file again: it is incomplete or damaged, or no model's"},
    [MODEL_MEMORY] = {"memory", "take a smaller file of this model, or a machine with more memory",
                      "take a smaller file of this model, or a machine with more memory"},
};

struct load_fault load_fault_of(enum model_part part, const struct error *err)
{
    if (part == MODEL_CONFIG && strstr(err->text, "tensor '") != NULL)
        part = MODEL_WEIGHTS;
    if (err->status == STATUS_EXHAUSTED && part != MODEL_TEMPLATE)
        part = MODEL_MEMORY;
    return (struct load_fault){parts[part].name, err->status == STATUS_UNIMPLEMENTED
                                                     ? parts[part].unsupported
                                                     : parts[part].wrong};
}

struct load_fault load_fault_of_open(const struct error *err)
{
    static const struct {
        const char *file; /* as errors name it, behind the model's path */
        enum model_part part;
    } files[] = {
        {": tokenizer", MODEL_TOKENIZER},          {": chat_template", MODEL_TEMPLATE},
        {": config.json", MODEL_CONFIG},           {": generation_config.json", MODEL_CONFIG},
        {": 1_Pooling/config.json", MODEL_CONFIG}, {": 1_LogitScore/config.json", MODEL_CONFIG}};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (strstr(err->text, files[i].file) != NULL)
            return load_fault_of(files[i].part, err);
    if (err->status == STATUS_NOT_FOUND || err->status == STATUS_INVALID)
        return (struct load_fault){NULL, NULL};
    return load_fault_of(MODEL_WEIGHTS, err);
}
