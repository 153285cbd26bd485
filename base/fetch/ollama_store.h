/* Models that Ollama has fetched on this machine, read in place from its store: a manifest in
 * manifests/HOST/NAMESPACE/NAME/TAG names the blob of the weights. Nothing is written there. Any
 * thread. */
#ifndef BASE_FETCH_OLLAMA_STORE_H
#define BASE_FETCH_OLLAMA_STORE_H

#include "base/status.h"

struct model_name;

/* The path of the GGUF file, for the caller to free. The store is OLLAMA_MODELS, else that of the
 * user (~/.ollama/models) or of Ollama's service (/usr/share/ollama/.ollama/models) which has the
 * model. NOT_FOUND; UNIMPLEMENTED where the model is more than one GGUF file; DATA_LOSS. */
enum status ollama_store_find(char **out, const struct model_name *name,
                              struct error *err) MUST_CHECK;

#endif
