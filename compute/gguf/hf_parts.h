/* What the files share that read a folder as transformers saves it (config.json, tokenizer.json,
 * *.safetensors): it is translated to the keys and tensors of a GGUF file, so that nothing else
 * learns of it. hf_json.c reads JSON, hf_keys.c writes keys, hf_config.c, hf_families.c, hf_rope.c,
 * hf_layers.c, hf_encoder.c, hf_ranker.c, hf_splitting.c, hf_pieces.c and hf_tokenizer.c translate,
 * hf_names.c and hf_merged.c know the tensors, hf_tensors.c reads a file's head, safetensors.c puts
 * all together. */
#ifndef COMPUTE_GGUF_HF_PARTS_H
#define COMPUTE_GGUF_HF_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "compute/gguf/parts.h"

/* hf_json.c: texts of failures name the key, not the file. */

/* A JSON object, of bytes that a file gave. Of members of one name the last counts, as where the
 * file was written. */
enum status hf_json_parse(json_t **out, const char *bytes, size_t len,
                          struct error *err) MUST_CHECK;
/* Members of an object, which may be absent or null: NOT_FOUND; of another type: DATA_LOSS. */
enum status hf_json_u64(const json_t *object, const char *name, uint64_t *out, struct error *err);
enum status hf_json_f64(const json_t *object, const char *name, double *out, struct error *err);
/* The member where it is an object, else NULL. */
const json_t *hf_json_object(const json_t *object, const char *name);
/* The text of a member, "" where it is no text. */
const char *hf_json_text(const json_t *object, const char *name);
bool hf_json_is_true(const json_t *object, const char *name);

/* hf_keys.c: the bytes of GGUF keys. The first failure is kept, and all after it do nothing. */

struct hf_keys {
    struct buf bytes;
    uint64_t n;
    const char *prefix; /* of keys that begin with a dot */
    bool has_failed;
};

void hf_keys_init(struct hf_keys *k);
void hf_keys_deinit(struct hf_keys *k);
void hf_key_text(struct hf_keys *k, const char *name, const char *text, size_t len);
void hf_key_u64(struct hf_keys *k, const char *name, uint64_t value);
void hf_key_f32(struct hf_keys *k, const char *name, double value);
void hf_key_bool(struct hf_keys *k, const char *name, bool value);
/* An array of n texts or numbers; its items follow. */
void hf_key_texts(struct hf_keys *k, const char *name, uint64_t n);
void hf_key_numbers(struct hf_keys *k, const char *name, uint64_t n);
void hf_key_floats(struct hf_keys *k, const char *name, uint64_t n);
void hf_item_float(struct hf_keys *k, double number);
void hf_item_text(struct hf_keys *k, const char *text, size_t len);
void hf_item_number(struct hf_keys *k, uint32_t number);
/* An array of n truth values. */
void hf_key_bools(struct hf_keys *k, const char *name, const bool *values, uint64_t n);
/* Gives the bytes of a GGUF file without tensors, for the caller to free. */
enum status hf_keys_take(struct hf_keys *k, void **ret, size_t *ret_len,
                         struct error *err) MUST_CHECK;

/* What a tensor is multiplied by, in families that have such numbers. */
enum hf_factor {
    HF_NO_FACTOR,
    HF_FACTOR_EMBEDDING,
    HF_FACTOR_HEAD,
    HF_FACTOR_ATTENTION_IN,
    HF_FACTOR_KEY,
    HF_FACTOR_ATTENTION_OUT,
    HF_FACTOR_STATE_IN, /* each piece by its own: gates, values, keys, queries, steps */
    HF_FACTOR_STATE_OUT,
    HF_FACTOR_GATE,
    HF_FACTOR_DOWN,
    HF_N_FACTORS,
};

enum { HF_STATE_PIECES = 5 };
_Static_assert((int)HF_STATE_PIECES == (int)TENSOR_N_FACTORS,
               "a tensor has a factor for each piece");

struct hf_model {
    const struct hf_family *family;
    uint64_t n_layers, width, n_heads, n_kv_heads, head_dim, context;
    uint64_t n_rotated; /* of a head's numbers */
    uint64_t n_experts; /* 0: the layers are dense */
    /* Latent attention, of each head: numbers of a key that are not rotated, those of a value. */
    uint64_t latent_rank, plain_dim, value_dim;
    /* Heads of state: those of keys, those of values, and the numbers of each. */
    uint64_t n_key_heads, n_state_heads, state_dim;
    uint64_t state_width; /* of a value, of Mamba-2 */
    double factors[HF_N_FACTORS], state_factors[HF_STATE_PIECES];
    /* Of each layer of a model that has such: M for Mamba-2, * for attention, - and E for a network
     * alone, of experts; of others 0. */
    char kinds[1 << 10];
    uint64_t n_turning; /* pairs of a head that are rotated, where the others stand; 0: all are */
    bool is_tied;       /* the head is the embeddings, where no file has one */
    bool is_ranker;     /* has a head that scores a query with a document */
    uint64_t block_rows, block_cols; /* that a scale of FP8 is for; 0: one scale is for all */
    /* llama 3's rope: divisors are to be made where factor is not 0. */
    double rope_base, factor, low, high, original;
    /* Divisors for long and short contexts, of the config, or NULL. */
    const json_t *long_divisors, *short_divisors;
};

/* hf_families.c */

/* What becomes of sliding_window. */
enum hf_window {
    HF_WINDOW_CUTS, /* the layers are run without: the context ends where it would begin */
    HF_WINDOW_KEY,  /* it is a key, and layer_types says which layers have it */
    HF_WINDOW_ALL,  /* it is a key, and all layers have it */
};

enum { HF_DEFAULTS_MAX = 14, HF_LAYERS_MAX = 1 << 10, HF_WIDTH_MAX = 1 << 24 };

/* What a tensor of transformers holds: HF_PLAIN one of GGUF's, the others what hf_merged.c says. Of
 * gate and up the name of the gate stands in the tables. */
enum hf_kind {
    HF_PLAIN,
    HF_SLAB,            /* all experts */
    HF_SLAB_GATE_UP,    /* of each expert the gate, then the up */
    HF_COLUMNS,         /* all experts, columns before rows */
    HF_COLUMNS_GATE_UP, /* likewise, gates and ups in turn */
    HF_COLUMNS_HALVES,  /* likewise, the gates, then the ups */
    HF_ROWS,            /* a bias for each expert */
    HF_ROWS_GATE_UP,    /* gates and ups in turn */
    HF_GATE_UP,         /* the gate, then the up */
    HF_BLOCKS,          /* all experts in MXFP4, without the exponents */
    HF_BLOCKS_GATE_UP,  /* rows of gates and ups in turn */
    HF_LATENT,          /* of each head what makes its keys, then what makes its values */
    HF_STATE_HEADS,     /* of each key head of state: query, key, its values, their gates */
    HF_GROUPS,          /* a row for each group of heads of state */
    HF_DECAYS,          /* logarithms of decays, whose negatives GGUF has */
};

/* A tensor's name in transformers, and in GGUF. A name of GGUF without an ending has that of
 * transformers (.weight, .bias); else both names are whole. */
struct hf_name {
    const char *from, *to;
    bool has_pairs; /* where the family has them */
    bool is_whole;  /* although `to` has no ending */
    enum hf_factor factor;
    enum hf_kind kind;
};

/* One family of models, by config.json's model_type. */
struct hf_family {
    const char *model_type, *architecture;
    const char *nested_type;     /* the language model of text_config, with others beside it */
    const char *only_if;         /* a key that must be true; NULL: none */
    const char *activation;      /* its hidden_act */
    const struct hf_name *names; /* its own, before those that all families have; or NULL */
    const char *eps;             /* of LayerNorms; NULL: it has RMS norms */
    const char *rms_eps;         /* of RMS norms; NULL: rms_norm_eps */
    bool has_pairs;              /* GGUF has its queries and keys as adjacent pairs */
    bool is_tied;                /* where tie_word_embeddings is absent */
    bool has_experts;
    double near;             /* what router_jitter_noise must be; 0: there is no such key */
    const char *experts_if;  /* the key that is true where it has them; NULL: it has */
    const char *dense_width; /* of networks that are no experts; NULL: intermediate_size is */
    bool has_later_layers; /* layers behind the last one predict further tokens, and are not read */
    bool has_betas;        /* YaRN's beta_fast and beta_slow are keys */
    bool scales_by_depth;  /* branches by the root of the number of layers, logits by the width */
    bool has_latent;       /* attention is latent */
    bool has_state;        /* layers carry a state, unless layer_types says that they attend */
    /* Layers are Mamba-2, unless a list says that they attend; HF_MAMBA_BESIDE: all are both;
     * HF_MAMBA_ALONE: none attends. */
    enum { HF_NO_MAMBA, HF_MAMBA, HF_MAMBA_HALVES, HF_MAMBA_BESIDE, HF_MAMBA_ALONE } mamba;
    bool has_factors;                  /* hf_factors.c */
    const struct hf_name *names_dense; /* its own where layers have no experts; NULL: the same */
    const char *prefix;                /* in place of "model."; NULL: none */
    /* An encoder: its layers' names begin with this. It has names of its own for all that it has.
     */
    const char *encoder_layers;
    bool rotates;                /* an encoder's queries and keys */
    uint64_t n_unused_positions; /* at the begin of an encoder's table */
    bool has_two_heads;          /* those of layers with a window are of another width */
    bool has_streams;            /* beside the residual one */
    bool has_chunks;             /* windows are chunks, of the layers that are rotated */
    bool yarn_is_exact;          /* truncate: false */
    bool window_is_optional; /* there is one only where use_sliding_window or layer_types say so */
    float norm_add;          /* to the weights of norms */
    enum hf_window window;
    uint64_t routing;       /* expert_gating_func; 0: it is left out */
    size_t unrotated_every; /* the layers that no_rope_layers must name; 0: none */
    /* What transformers takes where config.json lacks the key. */
    struct hf_default {
        const char *name;
        double value;
    } defaults[HF_DEFAULTS_MAX];
};

enum status hf_family_find(const struct hf_family **out, const json_t *config,
                           struct error *err) MUST_CHECK;
/* The number that the family has where config.json has none: NOT_FOUND for none. */
enum status hf_family_default(double *out, const struct hf_family *f, const char *name);

/* hf_rope.c */

/* Writes the keys of rope; m's head_dim and context are known. */
enum status hf_rope_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                         struct error *err) MUST_CHECK;
/* The base of rope in layers with a window, where the file has one. */
enum status hf_rope_write_window_base(struct hf_keys *keys, const json_t *config,
                                      struct error *err) MUST_CHECK;

/* hf_layers.c: layers that are not of the common kind */

/* Latent keys and values: m's head_dim becomes what is rotated of a head. */
enum status hf_latent_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                           struct error *err) MUST_CHECK;
/* Layers that carry a state in the place of attention. */
enum status hf_state_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                          struct error *err) MUST_CHECK;
/* The same of Mamba-2. */
enum status hf_mamba_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                          struct error *err) MUST_CHECK;
/* How many layers config.json lists, where it does not say their number. */
size_t hf_mamba_n_layers(const json_t *config);
/* Layers with heads of two widths, networks of two widths, embeddings of their own: m's head_dim
 * and n_kv_heads become those of the layers without a window, *ret_window_dim is that of the
 * others. */
enum status hf_two_heads_read(struct hf_model *m, uint64_t *ret_window_dim, struct hf_keys *keys,
                              const json_t *config, uint64_t ffn_width,
                              struct error *err) MUST_CHECK;

/* Layers whose attention is in chunks, and how their heads are normed and scaled. */
enum status hf_chunks_read(const struct hf_model *m, struct hf_keys *keys, const json_t *config,
                           struct error *err) MUST_CHECK;

/* Streams beside the residual one, embeddings of each layer, and where networks are cut. */
enum status hf_streams_read(const struct hf_model *m, struct hf_keys *keys, const json_t *config,
                            struct error *err) MUST_CHECK;

/* hf_factors.c */

/* What m's tensors are multiplied by. */
enum status hf_factors_read(struct hf_model *m, const json_t *config, struct error *err) MUST_CHECK;
/* Gives the tensor the form of one that is multiplied, where the family has factors. */
enum status hf_factors_form(struct tensor *w, const struct hf_model *m, enum hf_factor factor,
                            struct error *err) MUST_CHECK;

/* hf_config.c */

/* A number of config.json, else the family's; *out keeps its value where neither has one:
 * NOT_FOUND. A key that is null is none. */
enum status hf_config_f64(double *out, const struct hf_family *f, const json_t *config,
                          const char *name, struct error *err) MUST_CHECK;
/* A number from 1 to max, which may not be absent. */
enum status hf_config_size(uint64_t *out, const struct hf_family *f, const json_t *config,
                           const char *name, uint64_t max, struct error *err) MUST_CHECK;

/* Where the language model's keys are: config, or its text_config. */
const json_t *hf_config_text(const json_t *config);

/* Writes the architecture's keys; pooling: as hf_encoder_read, or the tokens whose logits score a
 * document (1_LogitScore/config.json). UNIMPLEMENTED names what is not translated. */
enum status hf_config_read(struct hf_model *out, struct hf_keys *keys, const json_t *config,
                           const json_t *pooling, struct error *err) MUST_CHECK;

/* hf_encoder.c */

/* The same of an encoder; pooling: what stands beside it (1_Pooling/config.json), or NULL. */
enum status hf_encoder_read(struct hf_model *m, struct hf_keys *keys, const json_t *config,
                            const json_t *pooling, struct error *err) MUST_CHECK;
/* How states become an embedding, as sentence-transformers says it beside the model. UNIMPLEMENTED:
 * it is not computed here. */
enum status hf_pooling_write(const struct hf_model *m, struct hf_keys *keys, const json_t *pooling,
                             struct error *err) MUST_CHECK;

/* hf_ranker.c */

/* Whether config.json's model was saved for sequence classification. */
bool hf_ranks(const json_t *config);
/* Whether a language model scores: by a head of its own, or by the logits of two tokens. */
enum status hf_ranker_read(struct hf_model *m, const json_t *config, const json_t *pooling,
                           struct error *err) MUST_CHECK;
/* Writes that the score of a language model that ranks is that of "yes", where logits make it or
 * config.json, the folder's name or its card (README.md, "" for none) says that it was; and where
 * it is one of the last two, which are no part of the model's hash, that it is. Of a classifier the
 * token that pads, too. */
void hf_ranker_write(const struct hf_model *m, struct hf_keys *keys, const json_t *config,
                     const char *name, const char *card);

/* Writes how sentence-transformers renders its chat template: its sentence_bert_config.json, or
 * NULL. */
void hf_ranker_write_template(struct hf_keys *keys, const json_t *sentence);

/* hf_names.c */

enum { HF_NO_EXPERT = -1 };

/* What the name that transformers gives says of a tensor. */
struct hf_place {
    bool is_unused;
    bool is_scale;  /* scales of the tensor of that name */
    int64_t expert; /* whose part it is of the tensor of all, or HF_NO_EXPERT */
    enum hf_kind kind;
};

/* Fills t's name from the name that transformers gives, and, if it is HF_PLAIN, its form. */
enum status hf_name_tensor(struct named_tensor *t, const struct hf_model *m, const char *name,
                           struct hf_place *ret, struct error *err) MUST_CHECK;

/* hf_merged.c */

struct hf_tensor;

bool hf_merged_is_blocks(enum hf_kind kind);
/* How many tensors of GGUF it holds. */
size_t hf_merged_n(enum hf_kind kind);
/* Of how many parts that lie apart the i-th of them is; 0: of none. Experts in FP8 are parts, since
 * each has scales of its own. */
size_t hf_merged_n_parts(enum hf_kind kind, const struct hf_model *m, const struct hf_tensor *from,
                         size_t i);
/* Where part `part` of the i-th of them begins, in rows of the file's tensor. */
size_t hf_merged_part_row(enum hf_kind kind, const struct hf_model *m, const struct hf_tensor *from,
                          size_t i, size_t part);
/* Whether it is all experts, each by rows as GGUF has them. */
bool hf_merged_is_slab(enum hf_kind kind);
/* Names the i-th of them; t has the name of the first. */
void hf_merged_name(struct named_tensor *t, enum hf_kind kind, size_t i);
/* Makes t, which has the first's name and from's place, the i-th of them. */
enum status hf_merged_form(struct named_tensor *t, enum hf_kind kind, const struct hf_model *m,
                           const struct hf_tensor *from, size_t i, struct error *err) MUST_CHECK;

/* hf_splitting.c */

/* How a tokenizer.json cuts text and merges. */
struct hf_splitting {
    const char *model, *pre; /* tokenizer.ggml.model and .pre */
    bool ignores_merges;     /* a word that is a token is that token */
    bool is_nfc;             /* text is composed (Unicode's NFC) before it is split */
    bool is_text;            /* merges of characters; those that are no token become bytes */
    /* Where merges are of characters: a space is put before text, only before that which begins
     * the prompt, only where none is. */
    bool adds_space, only_first, only_missing;
    /* Of hf_pieces.c. */
    enum hf_pieces { HF_MERGES, HF_WORDS, HF_UNIGRAMS } pieces;
    bool folds_case, strips_accents;
    bool removes_spaces, trims_left, trims_right, cuts_at_white_space;
    const char *charsmap; /* in base64; NULL: none */
};

/* UNIMPLEMENTED names what is not translated. */
enum status hf_splitting_read(struct hf_splitting *out, const json_t *tokenizer,
                              struct error *err) MUST_CHECK;

/* hf_pieces.c: models of WordPiece and of unigrams */

enum status hf_pieces_read(struct hf_splitting *out, const json_t *tokenizer,
                           struct error *err) MUST_CHECK;
/* Writes the keys that only these have. */
enum status hf_pieces_write(struct hf_keys *keys, const struct hf_splitting *s,
                            const json_t *tokenizer, size_t n_tokens, struct error *err) MUST_CHECK;

/* hf_tokenizer.c */

/* The parsed files; all but tokenizer may be NULL. */
struct hf_texts {
    const json_t *tokenizer, *tokenizer_config, *config, *generation_config;
    const json_t *processor_template; /* chat_template.json, or NULL */
    const char *template_text;        /* of chat_template.jinja */
    size_t template_len;
};

enum status hf_tokenizer_read(struct hf_keys *keys, const struct hf_texts *texts,
                              struct error *err) MUST_CHECK;

/* hf_tensors.c */

struct hf_tensor {
    const char *name; /* the header's */
    enum dtype type;  /* of floats of 16 or 32 bits */
    bool is_fp8, is_bytes;
    const char *other_type;     /* one that no weight has; NULL: it has one of those above */
    uint64_t number_bytes;      /* of the type */
    uint64_t dims[4];           /* [n_dims], the last is the fastest */
    size_t n_dims;              /* 0: one number */
    uint64_t begin, size_bytes; /* begin: from the file's start */
};

struct hf_tensors {
    json_t *header;
    struct hf_tensor *list; /* [n], by place */
    size_t n;
};

/* Checks the header of a file of file_bytes, whose first header_bytes behind the length are given.
 */
enum status hf_tensors_parse(struct hf_tensors *out, const char *header, size_t header_bytes,
                             uint64_t file_bytes, struct error *err) MUST_CHECK;
enum status hf_tensors_open(struct hf_tensors *out, const struct gguf *file,
                            struct error *err) MUST_CHECK;
void hf_tensors_close(struct hf_tensors *t);
/* UNIMPLEMENTED: weights cannot be of that type. */
enum status hf_tensor_refuse_type(const char *name, struct error *err);

#endif
