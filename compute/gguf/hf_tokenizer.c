/* tokenizer.json and what lies beside it: its tokens, merges and special tokens. hf_splitting.c
 * reads how it cuts text. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/hf_parts.h"

enum {
    TOKENS_MAX = 1 << 22,
    SHOWN_MAX = 60,
    TYPE_NORMAL = 1,
    TYPE_CONTROL = 3,
    TYPE_USER = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6,
    N_BYTES = 256,
    N_ENDS = 3
};

struct hf_token {
    const char *text; /* NULL: the id is not used */
    uint32_t type;
    uint32_t trim; /* white space that it takes: 1 before it, 2 behind it */
};

struct hf_vocab {
    struct hf_token *tokens; /* [n] by id */
    size_t n;
    size_t n_bytes; /* tokens of bytes */
    bool has_trims;
};

/* --- tokens --- */

static enum status put_token(struct hf_vocab *v, const json_t *id, const char *text, uint32_t type,
                             struct error *err)
{
    size_t at = (size_t)json_integer_value(id);

    if (!json_is_integer(id) || json_integer_value(id) < 0 || at >= v->n)
        return error_set(err, STATUS_DATA_LOSS, "token '%.*s' has an invalid id", SHOWN_MAX, text);
    if (v->tokens[at].text != NULL && strcmp(v->tokens[at].text, text) != 0)
        return error_set(err, STATUS_DATA_LOSS, "tokens '%.*s' and '%.*s' have the id %zu",
                         SHOWN_MAX, v->tokens[at].text, SHOWN_MAX, text, at);
    v->tokens[at] = (struct hf_token){text, type, 0};
    return STATUS_OK;
}

/* White space beside an added token that it takes, as GGUF's readers here know it. */
static void put_trim(struct hf_vocab *v, const json_t *added)
{
    uint32_t trim =
        (hf_json_is_true(added, "lstrip") ? 1u : 0u) | (hf_json_is_true(added, "rstrip") ? 2u : 0u);

    v->tokens[json_integer_value(json_object_get(added, "id"))].trim = trim;
    v->has_trims = v->has_trims || trim != 0;
}

/* Whether the token is that of a byte: <0x0A>. */
static bool is_byte_token(const char *text)
{
    static const char digits[] = "0123456789ABCDEF";

    return strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && strchr(digits, text[3]) != NULL &&
           strchr(digits, text[4]) != NULL && text[5] == '>';
}

/* Where characters are merged, tokens of bytes are no tokens of text. A user-defined token of
 * U+2581 (Gemma's runs of spaces) is an ordinary one, since merges give it for spaces. */
static enum status put_text_types(struct hf_vocab *v, struct error *err)
{
    for (size_t i = 0; i < v->n; i++) {
        struct hf_token *t = &v->tokens[i];

        if (t->text != NULL && is_byte_token(t->text)) {
            t->type = TYPE_BYTE;
            v->n_bytes++;
        } else if (t->type == TYPE_USER && strstr(t->text, "\xE2\x96\x81") != NULL) {
            t->type = TYPE_NORMAL;
        }
    }
    return v->n_bytes == N_BYTES ? STATUS_OK
                                 : error_set(err, STATUS_UNIMPLEMENTED,
                                             "its model has byte_fallback with tokens for %zu "
                                             "bytes, it must have tokens for %d",
                                             v->n_bytes, N_BYTES);
}

static enum status hf_count_tokens(size_t *out, const json_t *vocab, const json_t *added,
                                   struct error *err)
{
    json_int_t most = -1;
    const char *text;
    const json_t *one;
    json_t *id;
    size_t i;

    if (json_is_array(vocab))
        most = (json_int_t)json_array_size(vocab) - 1;
    json_object_foreach((json_t *)vocab, text, id)
    { /* only read */
        most = json_integer_value(id) > most ? json_integer_value(id) : most;
    }
    json_array_foreach(added, i, one)
    {
        json_int_t number = json_integer_value(json_object_get(one, "id"));

        most = number > most ? number : most;
    }
    if (most < 0 || most >= TOKENS_MAX)
        return error_set(err, STATUS_DATA_LOSS,
                         "the largest id of its tokens is %lld, which is too large",
                         (long long)most);
    *out = (size_t)most + 1;
    return STATUS_OK;
}

/* Unigrams are a list of texts with their scores, by id. */
static enum status put_unigrams(struct hf_vocab *v, const json_t *vocab, struct error *err)
{
    const json_t *one;
    size_t i;

    json_array_foreach(vocab, i, one)
    {
        const json_t *text = json_array_get(one, 0);

        if (!json_is_string(text) || !json_is_number(json_array_get(one, 1)))
            return error_set(err, STATUS_DATA_LOSS, "token %zu is not a text with a score", i);
        v->tokens[i] = (struct hf_token){json_string_value(text), TYPE_NORMAL, 0};
    }
    return STATUS_OK;
}

static enum status put_tokens(struct hf_vocab *v, const json_t *vocab, const json_t *added,
                              struct error *err)
{
    enum status rc = put_unigrams(v, vocab, err);
    const char *text;
    const json_t *one;
    json_t *id;
    size_t i;

    if (rc != STATUS_OK)
        return rc;
    json_object_foreach((json_t *)vocab, text, id)
    { /* only read */
        rc = put_token(v, id, text, TYPE_NORMAL, err);
        if (rc != STATUS_OK)
            return rc;
    }
    json_array_foreach(added, i, one)
    {
        rc = put_token(v, json_object_get(one, "id"), hf_json_text(one, "content"),
                       hf_json_is_true(one, "special") ? TYPE_CONTROL : TYPE_USER, err);
        if (rc != STATUS_OK)
            return rc;
        put_trim(v, one);
    }
    return rc;
}

static enum status hf_vocab_open(struct hf_vocab *v, const json_t *tokenizer, struct error *err)
{
    const json_t *vocab = json_object_get(hf_json_object(tokenizer, "model"), "vocab");
    const json_t *added = json_object_get(tokenizer, "added_tokens");
    enum status rc = hf_count_tokens(&v->n, vocab, added, err);

    if (rc != STATUS_OK)
        return rc;
    v->tokens = try_alloc(v->n, sizeof(*v->tokens));
    if (v->tokens == NULL)
        return error_no_memory(err, v->n * sizeof(*v->tokens), "its tokens");
    return put_tokens(v, vocab, added, err);
}

/* In GGUF a token that begins a word begins with U+2581, and others have no ##. */
static enum status write_word_piece(struct hf_keys *keys, const char *text, struct buf *room,
                                    struct error *err)
{
    if (strncmp(text, "##", 2) == 0) {
        hf_item_text(keys, text + 2, strlen(text + 2));
        return STATUS_OK;
    }
    buf_clear(room);
    if (buf_printf(room, "\xE2\x96\x81%s", text) != STATUS_OK)
        return error_no_memory(err, strlen(text), "a token");
    hf_item_text(keys, room->data, room->len);
    return STATUS_OK;
}

/* The text of token i; an unused id has one like "[PAD7]". */
static enum status write_token(struct hf_keys *keys, const struct hf_vocab *v, size_t i,
                               bool is_word_piece, struct buf *room, struct error *err)
{
    const struct hf_token *t = &v->tokens[i];

    if (t->text != NULL && is_word_piece && t->type == TYPE_NORMAL)
        return write_word_piece(keys, t->text, room, err);
    buf_clear(room);
    if (t->text == NULL && buf_printf(room, "[PAD%zu]", i) != STATUS_OK)
        return error_no_memory(err, 0, "a token");
    hf_item_text(keys, t->text == NULL ? room->data : t->text,
                 t->text == NULL ? room->len : strlen(t->text));
    return STATUS_OK;
}

static enum status write_tokens(struct hf_keys *keys, const struct hf_vocab *v, bool is_word_piece,
                                struct error *err)
{
    enum status rc = STATUS_OK;
    struct buf room;

    buf_init(&room, SIZE_MAX);
    hf_key_texts(keys, "tokenizer.ggml.tokens", v->n);
    for (size_t i = 0; rc == STATUS_OK && i < v->n; i++)
        rc = write_token(keys, v, i, is_word_piece, &room, err);
    buf_deinit(&room);
    if (rc != STATUS_OK)
        return rc;
    hf_key_numbers(keys, "tokenizer.ggml.token_type", v->n);
    for (size_t i = 0; i < v->n; i++)
        hf_item_number(keys, v->tokens[i].text == NULL ? TYPE_UNUSED : v->tokens[i].type);
    if (!v->has_trims)
        return STATUS_OK;
    hf_key_numbers(keys, "tokenizer.parley.trims", v->n);
    for (size_t i = 0; i < v->n; i++)
        hf_item_number(keys, v->tokens[i].trim);
    return STATUS_OK;
}

static void write_splitting(struct hf_keys *keys, const struct hf_splitting *s)
{
    hf_key_text(keys, "tokenizer.ggml.model", s->model, strlen(s->model));
    if (s->pieces != HF_MERGES)
        return;
    hf_key_text(keys, "tokenizer.ggml.pre", s->pre, strlen(s->pre));
    hf_key_bool(keys, "tokenizer.parley.ignore_merges", s->ignores_merges);
    if (s->is_nfc)
        hf_key_bool(keys, "tokenizer.parley.nfc", true);
    if (!s->is_text)
        return;
    hf_key_bool(keys, "tokenizer.ggml.add_space_prefix", s->adds_space);
    hf_key_bool(keys, "tokenizer.parley.space_prefix_once", s->only_first);
    hf_key_bool(keys, "tokenizer.parley.space_prefix_missing", s->only_missing);
}

/* --- merges --- */

/* A merge is "a b", or in newer files ["a", "b"]. */
static enum status write_merge(struct hf_keys *keys, const json_t *merge, struct buf *room,
                               struct error *err)
{
    const char *left = json_string_value(json_array_get(merge, 0));
    const char *right = json_string_value(json_array_get(merge, 1));

    if (json_is_string(merge)) {
        hf_item_text(keys, json_string_value(merge), json_string_length(merge));
        return STATUS_OK;
    }
    if (left == NULL || right == NULL)
        return error_set(err, STATUS_DATA_LOSS, "a merge is not a pair of texts");
    buf_clear(room);
    if (buf_printf(room, "%s %s", left, right) != STATUS_OK)
        return error_no_memory(err, strlen(left) + strlen(right), "a merge");
    hf_item_text(keys, room->data, room->len);
    return STATUS_OK;
}

static enum status write_merges(struct hf_keys *keys, const json_t *tokenizer, struct error *err)
{
    const json_t *merges = json_object_get(hf_json_object(tokenizer, "model"), "merges"), *merge;
    struct buf room;
    enum status rc = STATUS_OK;
    size_t i;

    if (!json_is_array(merges))
        return error_set(err, STATUS_DATA_LOSS, "its model has no merges");
    buf_init(&room, 1 << 16);
    hf_key_texts(keys, "tokenizer.ggml.merges", json_array_size(merges));
    json_array_foreach(merges, i, merge)
    {
        rc = write_merge(keys, merge, &room, err);
        if (rc != STATUS_OK)
            break;
    }
    buf_deinit(&room);
    return rc;
}

/* --- special tokens --- */

/* The token that tokenizer_config.json names, as text or as an object; "" for none. */
static const char *named_token(const struct hf_texts *texts, const char *name)
{
    const json_t *object = hf_json_object(texts->tokenizer_config, name);

    return object != NULL ? hf_json_text(object, "content")
                          : hf_json_text(texts->tokenizer_config, name);
}

static bool hf_id_of(const struct hf_vocab *v, const char *text, uint64_t *ret)
{
    for (size_t i = v->n; *text != '\0' && i-- > 0;) /* special ones are last, as a rule */
        if (v->tokens[i].text != NULL && strcmp(v->tokens[i].text, text) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

struct hf_ends {
    uint64_t ids[N_ENDS];
    size_t n;
    bool has_more;
};

static void add_end(struct hf_ends *e, uint64_t id)
{
    for (size_t i = 0; i < e->n; i++)
        if (e->ids[i] == id)
            return;
    if (e->n == N_ENDS)
        e->has_more = true;
    else
        e->ids[e->n++] = id;
}

/* eos_token_id is a number or a list of them. */
static void add_ends_of(struct hf_ends *e, const json_t *config)
{
    const json_t *ids = json_object_get(config, "eos_token_id"), *id;
    size_t i;

    if (json_is_integer(ids) && json_integer_value(ids) >= 0)
        add_end(e, (uint64_t)json_integer_value(ids));
    json_array_foreach(ids, i, id) if (json_is_integer(id) && json_integer_value(id) >= 0)
        add_end(e, (uint64_t)json_integer_value(id));
}

/* The special token that one step of a post_processor puts first or last; "" for none. */
static const char *put_by_step(const json_t *step, bool is_last)
{
    const json_t *single = json_object_get(step, "single");
    const size_t n = json_array_size(single);
    const json_t *one = json_array_get(single, is_last && n > 0 ? n - 1 : 0);

    return hf_json_text(hf_json_object(one, "SpecialToken"), "id");
}

/* The same of the tokenizer's post_processor, or of a step of it. */
static const char *put_around(const json_t *tokenizer, bool is_last)
{
    const json_t *processor = hf_json_object(tokenizer, "post_processor"), *step;
    const char *token = put_by_step(processor, is_last);
    size_t i;

    json_array_foreach(json_object_get(processor, "processors"), i, step) if (*token == '\0')
        token = put_by_step(step, is_last);
    return token;
}

/* The token that each text gets at its end, where it is no encoder's. */
static const char *appended_token(const struct hf_texts *texts)
{
    const char *token = put_around(texts->tokenizer, true);

    if (*named_token(texts, "sep_token") != '\0')
        return "";
    return *token == '\0' && hf_json_is_true(texts->tokenizer_config, "add_eos_token")
               ? named_token(texts, "eos_token")
               : token;
}

static enum status write_ends(struct hf_keys *keys, const struct hf_vocab *v,
                              const struct hf_texts *texts, struct error *err)
{
    static const char *const names[N_ENDS] = {"tokenizer.ggml.eos_token_id",
                                              "tokenizer.ggml.eot_token_id",
                                              "tokenizer.ggml.eom_token_id"};
    struct hf_ends ends = {0};
    uint64_t id;

    if (hf_id_of(v, appended_token(texts), &id)) { /* the first is the one that is appended */
        add_end(&ends, id);
        hf_key_bool(keys, "tokenizer.ggml.add_eos_token", true);
    }
    if (hf_id_of(v, named_token(texts, "eos_token"), &id))
        add_end(&ends, id);
    add_ends_of(&ends, texts->generation_config);
    add_ends_of(&ends, texts->config);
    if (ends.n == 0 && *named_token(texts, "sep_token") != '\0') /* an encoder writes no replies */
        return STATUS_OK;
    if (ends.n == 0 || ends.has_more)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the model has %s tokens that end a reply (eos_token, eos_token_id), "
                         "there must be 1 to %d",
                         ends.has_more ? "more" : "no", N_ENDS);
    for (size_t i = 0; i < ends.n; i++)
        hf_key_u64(keys, names[i], ends.ids[i]);
    return STATUS_OK;
}

/* The tokens of encoders: that which begins a text, the one between two texts, and the one of a
 * word that is none. */
static void write_encoder_tokens(struct hf_keys *keys, const struct hf_vocab *v,
                                 const struct hf_texts *texts)
{
    const json_t *model = hf_json_object(texts->tokenizer, "model");
    uint64_t id;

    if (hf_id_of(v, named_token(texts, "cls_token"), &id))
        hf_key_u64(keys, "tokenizer.ggml.cls_token_id", id);
    if (hf_id_of(v, named_token(texts, "sep_token"), &id))
        hf_key_u64(keys, "tokenizer.ggml.seperator_token_id", id); /* GGUF spells it so */
    if (hf_id_of(v, hf_json_text(model, "unk_token"), &id) &&
        strcmp(hf_json_text(model, "type"), "WordPiece") == 0)
        hf_key_u64(keys, "tokenizer.ggml.unknown_token_id", id);
}

static void write_begin(struct hf_keys *keys, const struct hf_vocab *v,
                        const struct hf_texts *texts)
{
    const char *token = named_token(texts, "bos_token");
    const json_t *adds = json_object_get(texts->tokenizer_config, "add_bos_token");
    uint64_t id;
    bool has_token = hf_id_of(v, token, &id);

    if (!has_token &&
        hf_json_u64(texts->config, "bos_token_id", &id, &(struct error){0}) == STATUS_OK)
        has_token = id < v->n && v->tokens[id].text != NULL;
    if (has_token)
        hf_key_u64(keys, "tokenizer.ggml.bos_token_id", id);
    hf_key_bool(keys, "tokenizer.ggml.add_bos_token",
                has_token && (json_is_boolean(adds) ? json_is_true(adds)
                                                    : strcmp(put_around(texts->tokenizer, false),
                                                             v->tokens[id].text) == 0));
}

/* A file of its own, else tokenizer_config.json's: a text, or a list whose 'default' counts. Else
 * that of an older processor. */
static void write_template(struct hf_keys *keys, const struct hf_texts *texts)
{
    static const char key[] = "tokenizer.chat_template";
    const json_t *templates = json_object_get(texts->tokenizer_config, "chat_template"), *one;
    const char *text = json_string_value(templates);
    const char *of_processor = hf_json_text(texts->processor_template, "chat_template");
    size_t i;

    json_array_foreach(templates, i, one) if (strcmp(hf_json_text(one, "name"), "default") == 0)
        text = hf_json_text(one, "template");
    if (texts->template_text != NULL)
        hf_key_text(keys, key, texts->template_text, texts->template_len);
    else if (text != NULL)
        hf_key_text(keys, key, text, strlen(text));
    else if (*of_processor != '\0')
        hf_key_text(keys, key, of_processor, strlen(of_processor));
}

enum status hf_tokenizer_read(struct hf_keys *keys, const struct hf_texts *texts, struct error *err)
{
    struct hf_splitting splitting;
    struct hf_vocab v = {0};
    enum status rc;

    if ((rc = hf_splitting_read(&splitting, texts->tokenizer, err)) != STATUS_OK ||
        (rc = hf_vocab_open(&v, texts->tokenizer, err)) != STATUS_OK ||
        (splitting.is_text && (rc = put_text_types(&v, err)) != STATUS_OK))
        goto out;
    write_splitting(keys, &splitting);
    rc = write_tokens(keys, &v, splitting.pieces == HF_WORDS, err);
    if (rc == STATUS_OK)
        rc = splitting.pieces == HF_MERGES
                 ? write_merges(keys, texts->tokenizer, err)
                 : hf_pieces_write(keys, &splitting, texts->tokenizer, v.n, err);
    if (rc == STATUS_OK)
        rc = write_ends(keys, &v, texts, err);
    write_encoder_tokens(keys, &v, texts);
    write_begin(keys, &v, texts);
    write_template(keys, texts);
out:
    free(v.tokens);
    return rc;
}
