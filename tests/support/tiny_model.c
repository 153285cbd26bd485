#include "tests/support/tiny_model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_TEXT = 8, GGUF_ARRAY = 9 };
enum { ALIGNMENT = 32, TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER = 4 };

const char tiny_chat_template[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

static const struct {
    const char *merge, *token;
} merges[] = {
    {"h e", "he"}, {"l l", "ll"}, {"he ll", "hell"}, {"hell o", "hello"},
    {"Ġ t", "Ġt"}, {"Ġ a", "Ġa"}, {"i n", "in"},     {"Ġt he", "Ġthe"},
};

enum { N_MERGES = sizeof(merges) / sizeof(merges[0]) };
_Static_assert(TINY_FIRST_MERGED + N_MERGES == TINY_VOCAB, "the vocabulary's size");

struct bytes {
    unsigned char *data;
    size_t len, cap;
};

/* The file under construction: the parts after its header, and how many entries the first two have.
 */
struct file {
    const struct tiny_config *config;
    struct bytes keys, infos, data;
    uint64_t n_keys, n_tensors;
    uint64_t chance;
};

static void put(struct bytes *b, const void *from, size_t len)
{
    if (len == 0)
        return;
    if (b->len + len > b->cap) {
        b->cap = (b->len + len) * 2;
        b->data = xrealloc(b->data, b->cap);
    }
    memcpy(b->data + b->len, from, len);
    b->len += len;
}

static void put_u32(struct bytes *b, uint32_t value)
{
    put(b, &value, sizeof(value));
}

static void put_u64(struct bytes *b, uint64_t value)
{
    put(b, &value, sizeof(value));
}

static void put_text(struct bytes *b, const char *text)
{
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

static bool is_left_out(const struct file *f, const char *name)
{
    return f->config->leave_out != NULL && strcmp(f->config->leave_out, name) == 0;
}

static void begin_key(struct file *f, const char *name, uint32_t type)
{
    put_text(&f->keys, name);
    put_u32(&f->keys, type);
    f->n_keys++;
}

/* False if the key is left out, or set to another value at the end. */
static bool key(struct file *f, const char *name, uint32_t type)
{
    const char *set_key = f->config->set_key;

    if (is_left_out(f, name) || (set_key != NULL && strcmp(set_key, name) == 0))
        return false;
    begin_key(f, name, type);
    return true;
}

static void key_u32(struct file *f, const char *name, uint32_t value)
{
    if (key(f, name, GGUF_U32))
        put_u32(&f->keys, value);
}

static void key_f32(struct file *f, const char *name, float value)
{
    if (key(f, name, GGUF_F32))
        put(&f->keys, &value, sizeof(value));
}

static void key_text(struct file *f, const char *name, const char *value)
{
    if (key(f, name, GGUF_TEXT))
        put_text(&f->keys, value);
}

static void key_bool(struct file *f, const char *name, bool value)
{
    const unsigned char truth = value;

    if (key(f, name, GGUF_BOOL))
        put(&f->keys, &truth, 1);
}

static bool key_array(struct file *f, const char *name, uint32_t item_type, uint64_t n)
{
    if (!key(f, name, GGUF_ARRAY))
        return false;
    put_u32(&f->keys, item_type);
    put_u64(&f->keys, n);
    return true;
}

/* The character that stands for a byte in GPT-2's vocabularies: itself if it is printable, else the
 * next one from U+0100 on. */
static void put_byte_token(struct bytes *b, unsigned byte, uint32_t *next_other)
{
    bool is_seen = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    char text[5] = "";

    (void)utf8_encode(is_seen ? byte : (*next_other)++, text);
    put_text(b, text);
}

static size_t file_n_vocab(const struct file *f)
{
    return TINY_VOCAB + f->config->n_more_tokens;
}

static void put_vocabulary(struct file *f)
{
    const struct tiny_token *more = f->config->more_tokens;
    uint32_t next_other = 0x100;

    key_text(f, "tokenizer.ggml.model", "gpt2");
    key_text(f, "tokenizer.ggml.pre", "smollm");
    if (key_array(f, "tokenizer.ggml.tokens", GGUF_TEXT, file_n_vocab(f))) {
        put_text(&f->keys, "<|endoftext|>");
        put_text(&f->keys, "<|im_start|>");
        put_text(&f->keys, "<|im_end|>");
        for (unsigned byte = 0; byte < 256; byte++)
            put_byte_token(&f->keys, byte, &next_other);
        for (size_t i = 0; i < N_MERGES; i++)
            put_text(&f->keys, merges[i].token);
        for (size_t i = 0; i < f->config->n_more_tokens; i++)
            put_text(&f->keys, more[i].text);
    }
    if (key_array(f, "tokenizer.ggml.token_type", GGUF_I32, file_n_vocab(f)))
        for (size_t i = 0; i < file_n_vocab(f); i++)
            put_u32(&f->keys, i < TINY_FIRST_BYTE               ? TOKEN_CONTROL
                              : i < TINY_VOCAB                  ? TOKEN_NORMAL
                              : more[i - TINY_VOCAB].is_control ? TOKEN_CONTROL
                                                                : TOKEN_USER);
    if (key_array(f, "tokenizer.ggml.merges", GGUF_TEXT, N_MERGES))
        for (size_t i = 0; i < N_MERGES; i++)
            put_text(&f->keys, merges[i].merge);
    key_u32(f, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    key_u32(f, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    key_u32(f, "tokenizer.ggml.unknown_token_id", TINY_END_OF_TEXT);
    key_u32(f, "tokenizer.ggml.padding_token_id", TINY_IM_END);
    key_bool(f, "tokenizer.ggml.add_bos_token", f->config->adds_bos);
    key_bool(f, "tokenizer.ggml.add_space_prefix", false);
    key_text(f, "tokenizer.chat_template",
             f->config->chat_template == NULL ? tiny_chat_template : f->config->chat_template);
}

static void put_key(struct file *f, const struct tiny_key *k)
{
    const unsigned char truth = k->number != 0;

    if (k->text != NULL) {
        key_text(f, k->name, k->text);
    } else if (!k->is_bool) {
        key_f32(f, k->name, k->number);
    } else if (key(f, k->name, GGUF_BOOL)) {
        put(&f->keys, &truth, 1);
    }
}

static const char *of_architecture(char name[64], const struct tiny_config *c, const char *key)
{
    (void)snprintf(name, 64, "%s.%s",
                   c->has_own_keys ? c->architecture
                   : c->has_state  ? "qwen35"
                                   : "llama",
                   key);
    return name;
}

static void put_metadata(struct file *f)
{
    const struct tiny_config *c = f->config;
    char name[64];

    key_text(f, "general.architecture",
             c->architecture != NULL ? c->architecture
             : c->has_state          ? "qwen35"
                                     : "llama");
    key_text(f, "general.name", "tiny");
    key_u32(f, of_architecture(name, c, "block_count"), TINY_LAYERS);
    key_u32(f, of_architecture(name, c, "context_length"), TINY_CONTEXT);
    key_u32(f, of_architecture(name, c, "embedding_length"), TINY_WIDTH);
    key_u32(f, of_architecture(name, c, "feed_forward_length"), TINY_WIDTH);
    key_u32(f, of_architecture(name, c, "attention.head_count"), TINY_HEADS);
    key_u32(f, of_architecture(name, c, "attention.head_count_kv"), TINY_KV_HEADS);
    key_u32(f, of_architecture(name, c, "rope.dimension_count"), TINY_HEAD_DIM);
    key_u32(f, of_architecture(name, c, "vocab_size"), (uint32_t)file_n_vocab(f));
    key_f32(f, of_architecture(name, c, "rope.freq_base"), 10000.0f);
    key_f32(f, of_architecture(name, c, "attention.layer_norm_rms_epsilon"), 1e-5f);
    if (c->has_state) {
        key_u32(f, "qwen35.full_attention_interval", 2);
        key_u32(f, "qwen35.ssm.conv_kernel", TINY_STATE_TAPS);
        key_u32(f, "qwen35.ssm.state_size", TINY_STATE_DIM);
        key_u32(f, "qwen35.ssm.group_count", TINY_STATE_KEYS);
        key_u32(f, "qwen35.ssm.time_step_rank", TINY_STATE_HEADS);
        key_u32(f, "qwen35.ssm.inner_size", TINY_WIDTH);
    }
    put_vocabulary(f);
    for (size_t i = 0; i < sizeof(c->add_keys) / sizeof(c->add_keys[0]); i++)
        if (c->add_keys[i].name != NULL)
            put_key(f, &c->add_keys[i]);
    if (c->set_key != NULL) {
        begin_key(f, c->set_key, GGUF_U32);
        put_u32(&f->keys, c->set_value);
    }
}

/* Uniform in [-1, 1): splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators"). */
static float draw(struct file *f)
{
    uint64_t z = f->chance += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (float)((z ^ z >> 31) >> 40) * 0x1p-23f - 1.0f;
}

static void put_f16(unsigned char *to, float value)
{
    uint16_t half = f32_to_f16(value);

    memcpy(to, &half, sizeof(half));
}

/* For each block format: the offsets of its scale and its min (a min at 0 means none), how far its
 * numbers, of random bits, spread at scale 1, and the min that makes their mean zero. */
static const struct block {
    enum dtype type;
    size_t scale_at, min_at;
    float spread, min;
} blocks[] = {
    {DTYPE_Q4_0, 0, 0, 4.6f, 0},
    {DTYPE_Q4_1, 0, 2, 4.6f, -7.5f},
    {DTYPE_Q5_0, 0, 0, 9.2f, 0},
    {DTYPE_Q5_1, 0, 2, 9.2f, -15.5f},
    {DTYPE_Q8_0, 0, 0, 74, 0},
    {DTYPE_Q4_K, 0, 2, 36 * 4.6f * 1.8f, 7.5f},
    {DTYPE_Q5_K, 0, 2, 36 * 9.2f * 1.8f, 15.5f},
    {DTYPE_Q6_K, 208, 0, 74 * 18.5f, 0},
    {DTYPE_Q2_K, 80, 82, 8.8f * 1.5f, 1.5f},
    {DTYPE_Q3_K, 108, 0, 18.5f * 2.3f, 0},
    {DTYPE_IQ4_NL, 0, 0, 70, 0},
    {DTYPE_IQ4_XS, 0, 0, 18.5f * 70, 0},
    {DTYPE_MXFP4, 0, 0, 5.6f, 0},
};

static void put_block(struct file *f, const struct block *b, float spread)
{
    unsigned char block[256];
    size_t size = dtype_block_bytes(b->type);
    float scale = spread / b->spread * (1.0f + 0.5f * draw(f));

    assert(size <= sizeof(block));
    for (size_t i = 0; i < size; i++)
        block[i] = (unsigned char)((draw(f) + 1.0f) * 128.0f);
    if (b->type == DTYPE_MXFP4)
        block[0] = (unsigned char)(128 + (int)lrintf(log2f(fabsf(scale))));
    else
        put_f16(block + b->scale_at, scale);
    if (b->min_at > 0)
        put_f16(block + b->min_at, scale * b->min);
    put(&f->data, block, size);
}

static void put_number(struct file *f, enum dtype type, float value)
{
    uint32_t bits;
    uint16_t half;

    memcpy(&bits, &value, sizeof(bits));
    half = type == DTYPE_F16 ? f32_to_f16(value) : (uint16_t)(bits >> 16);
    if (type == DTYPE_F32)
        put(&f->data, &value, sizeof(value));
    else
        put(&f->data, &half, sizeof(half));
}

static void put_values(struct file *f, enum dtype type, size_t n, float mean, float spread)
{
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        if (blocks[i].type == type) {
            for (size_t done = 0; done < n; done += dtype_block_values(type))
                put_block(f, &blocks[i], spread);
            return;
        }
    assert(type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16);
    for (size_t i = 0; i < n; i++)
        put_number(f, type, mean + spread * 1.7f * draw(f));
}

/* Sets the exponent of the first number, or of the first block's scale, to its maximum. */
static void break_first(struct file *f, enum dtype type, size_t at)
{
    const bool is_wide = type == DTYPE_F32 || type == DTYPE_BF16;

    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        if (blocks[i].type == type)
            at += blocks[i].scale_at;
    at += type == DTYPE_F32 ? 2 : 0;
    f->data.data[at] |= is_wide ? 0x80 : 0;
    f->data.data[at + 1] |= is_wide ? 0x7f : 0x7c;
}

static void tensor(struct file *f, const char *name, enum dtype type, size_t n_rows, size_t n_cols,
                   float mean, float spread)
{
    static const unsigned char zeroes[ALIGNMENT];
    size_t at;

    if (is_left_out(f, name))
        return;
    put(&f->data, zeroes, (ALIGNMENT - f->data.len % ALIGNMENT) % ALIGNMENT);
    put_text(&f->infos, name);
    put_u32(&f->infos, n_rows == 1 ? 1 : 2);
    put_u64(&f->infos, n_cols);
    if (n_rows > 1)
        put_u64(&f->infos, n_rows);
    put_u32(&f->infos, type);
    put_u64(&f->infos, f->data.len);
    f->n_tensors++;
    at = f->data.len;
    put_values(f, type, n_rows * n_cols, mean, spread);
    if (f->config->break_tensor != NULL && strcmp(f->config->break_tensor, name) == 0)
        break_first(f, type, at);
}

static void matrix(struct file *f, const char *name, size_t n_rows)
{
    tensor(f, name, f->config->type, n_rows, TINY_WIDTH, 0.0f, 1.0f / sqrtf(TINY_WIDTH));
}

static void gain(struct file *f, const char *name)
{
    tensor(f, name, DTYPE_F32, 1, TINY_WIDTH, 1.0f, 0.1f);
}

struct layer_part {
    const char *name;
    size_t n_rows; /* 1: a gain */
};

static void put_parts(struct file *f, int layer, const struct layer_part *parts, size_t n)
{
    char name[64];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, parts[i].name);
        if (parts[i].n_rows == 1)
            gain(f, name);
        else
            matrix(f, name, parts[i].n_rows);
    }
}

/* A layer with a state, or one that attends with gates. */
static void put_state_layer(struct file *f, int layer)
{
    enum { CHANNELS = (2 * TINY_STATE_KEYS + TINY_STATE_HEADS) * TINY_STATE_DIM };
    static const struct layer_part state[] = {
        {"attn_qkv", CHANNELS},          {"attn_gate", TINY_WIDTH}, {"ssm_beta", TINY_STATE_HEADS},
        {"ssm_alpha", TINY_STATE_HEADS}, {"ssm_out", TINY_WIDTH},
    };
    static const struct layer_part attention[] = {
        {"attn_q", 2 * TINY_HEADS * TINY_HEAD_DIM},
        {"attn_k", TINY_KV_HEADS * TINY_HEAD_DIM},
        {"attn_v", TINY_KV_HEADS * TINY_HEAD_DIM},
        {"attn_output", TINY_WIDTH},
    };
    static const struct layer_part both[] = {
        {"attn_norm", 1},       {"post_attention_norm", 1}, {"ffn_gate", TINY_WIDTH},
        {"ffn_up", TINY_WIDTH}, {"ffn_down", TINY_WIDTH},
    };
    char name[64];

    put_parts(f, layer, both, sizeof(both) / sizeof(both[0]));
    if (layer % 2 == 1) {
        put_parts(f, layer, attention, sizeof(attention) / sizeof(attention[0]));
        (void)snprintf(name, sizeof(name), "blk.%d.attn_q_norm.weight", layer);
        tensor(f, name, DTYPE_F32, 1, TINY_HEAD_DIM, 1.0f, 0.1f);
        (void)snprintf(name, sizeof(name), "blk.%d.attn_k_norm.weight", layer);
        tensor(f, name, DTYPE_F32, 1, TINY_HEAD_DIM, 1.0f, 0.1f);
        return;
    }
    put_parts(f, layer, state, sizeof(state) / sizeof(state[0]));
    (void)snprintf(name, sizeof(name), "blk.%d.ssm_conv1d.weight", layer);
    tensor(f, name, DTYPE_F32, CHANNELS, TINY_STATE_TAPS, 0.0f, 0.7f);
    (void)snprintf(name, sizeof(name), "blk.%d.ssm_a", layer);
    tensor(f, name, DTYPE_F32, 1, TINY_STATE_HEADS, -0.4f, 0.2f);
    (void)snprintf(name, sizeof(name), "blk.%d.ssm_dt.bias", layer);
    tensor(f, name, DTYPE_F32, 1, TINY_STATE_HEADS, -1.0f, 0.5f);
    (void)snprintf(name, sizeof(name), "blk.%d.ssm_norm.weight", layer);
    tensor(f, name, DTYPE_F32, 1, TINY_STATE_DIM, 1.0f, 0.1f);
}

static void put_layer(struct file *f, int layer)
{
    static const struct layer_part parts[] = {
        {"attn_norm", 1},
        {"attn_q", TINY_HEADS * TINY_HEAD_DIM},
        {"attn_k", TINY_KV_HEADS * TINY_HEAD_DIM},
        {"attn_v", TINY_KV_HEADS * TINY_HEAD_DIM},
        {"attn_output", TINY_WIDTH},
        {"ffn_norm", 1},
        {"ffn_gate", TINY_WIDTH},
        {"ffn_up", TINY_WIDTH},
        {"ffn_down", TINY_WIDTH},
    };

    if (f->config->has_state)
        put_state_layer(f, layer);
    else
        put_parts(f, layer, parts, sizeof(parts) / sizeof(parts[0]));
}

static void put_tensors(struct file *f)
{
    matrix(f, "token_embd.weight", file_n_vocab(f));
    for (int layer = 0; layer < TINY_LAYERS; layer++)
        put_layer(f, layer);
    gain(f, "output_norm.weight");
    if (f->config->has_own_head)
        matrix(f, "output.weight", file_n_vocab(f));
    if (f->config->has_rope_freqs)
        tensor(f, "rope_freqs.weight", DTYPE_F32, 1, TINY_HEAD_DIM / 2, 4.0f, 1.0f);
    if (f->config->add_tensor != NULL)
        gain(f, f->config->add_tensor);
}

void tiny_model_init(struct tiny_model *out, const struct tiny_config *config)
{
    static const unsigned char zeroes[ALIGNMENT];
    struct file f = {.config = config, .chance = config->seed};
    struct bytes all = {0};

    put_metadata(&f);
    put_tensors(&f);
    put(&all, "GGUF", 4);
    put_u32(&all, 3);
    put_u64(&all, f.n_tensors);
    put_u64(&all, f.n_keys);
    put(&all, f.keys.data, f.keys.len);
    put(&all, f.infos.data, f.infos.len);
    put(&all, zeroes, (ALIGNMENT - all.len % ALIGNMENT) % ALIGNMENT);
    put(&all, f.data.data, f.data.len);
    free(f.keys.data);
    free(f.infos.data);
    free(f.data.data);
    *out = (struct tiny_model){all.data, all.len};
}

void tiny_model_deinit(struct tiny_model *m)
{
    free(m->bytes);
    *m = (struct tiny_model){0};
}
