/* What a model's file says, without loading it: for people who choose among files. Works also on
 * files of architectures that are not run here. What is no language model and no encoder is small,
 * and is opened. */
#ifndef AGENTS_LM_INSPECTION_H
#define AGENTS_LM_INSPECTION_H

#include <stddef.h>
#include <stdint.h>

#include "agents/lm/load_fault.h"
#include "base/status.h"
#include "compute/numerics/kv_type.h"

struct gguf;

enum {
    INSPECTION_KINDS_MAX = 64, /* types of weights */
    INSPECTION_TEXT_SIZE = 64,
    INSPECTION_N_KV_TYPES = KV_Q8 + 1,
};

/* All weights of one type. */
struct inspection_kind {
    const char *type; /* "Q4_K"; a string constant */
    size_t n_tensors;
    uint64_t n_values, size_bytes;
};

struct lm_inspection {
    struct gguf *file;
    const char *kind; /* of agent that serves it: "lm", "encoder", "policy"; a string constant */
    /* Texts are cut where they are longer; "" where the file has none. */
    char architecture[INSPECTION_TEXT_SIZE], title[INSPECTION_TEXT_SIZE];
    char tokenizer[INSPECTION_TEXT_SIZE], pre_tokenizer[INSPECTION_TEXT_SIZE];
    char mix[INSPECTION_TEXT_SIZE]; /* "Q4_K_M": as the file says, else its most frequent type */
    const char *template_text;      /* the file's, not NUL-ended; NULL: none */
    size_t template_len;
    /* "chatml"; "jinja": another that is run; "": none, or template_why says why it is not run. */
    char template_name[INSPECTION_TEXT_SIZE];
    struct error template_why;
    uint64_t n_parameters, weight_bytes, size_bytes;
    size_t n_files, n_tensors;
    uint64_t n_layers, width, n_heads, n_kv_heads, head_dim, context, n_vocab; /* 0: unknown */
    struct inspection_kind kinds[INSPECTION_KINDS_MAX]; /* [n_kinds], most bytes first */
    size_t n_kinds;
    uint64_t kv_token_bytes[INSPECTION_N_KV_TYPES]; /* by kv_type; 0: unknown */
    /* Of the weights and, of a language model, one conversation that fills the context in F16. */
    uint64_t memory_bytes;
    uint64_t machine_bytes;  /* of the machine or the container */
    struct error why;        /* STATUS_OK: it loads here; else the reason why not */
    struct load_fault fault; /* of why */
};

/* Fails only where the file cannot be read as a model's at all; gguf_open's errors. */
enum status lm_inspect(struct lm_inspection *out, const char *path, struct error *err) MUST_CHECK;
void lm_inspection_deinit(struct lm_inspection *x);

#endif
