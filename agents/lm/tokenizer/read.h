/* Reads a vocabulary from a GGUF file. */
#ifndef AGENTS_LM_TOKENIZER_READ_H
#define AGENTS_LM_TOKENIZER_READ_H

#include "agents/lm/tokenizer/table.h"
#include "base/status.h"
#include "compute/gguf/gguf.h"

/* Fills a zeroed vocabulary from the file; after a failure vocab_close frees it. */
enum status vocab_read(struct vocab *v, struct gguf *g, struct error *err) MUST_CHECK;

#endif
