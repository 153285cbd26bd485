/* What a file is that is no model's: what a download left in its place, or another format. */
#include <string.h>

#include "compute/gguf/parts.h"

enum { LFS_MOST_BYTES = 1024 }; /* of a pointer, by its specification */

static const char lfs_head[] = "version https://git-lfs";
static const char lfs_what[] =
    "a pointer of Git LFS in the file's place: 'git lfs pull' fetches the file";

/* DATA_LOSS: the file itself is to be had; UNIMPLEMENTED: it is whole, and not read here. */
static const struct {
    size_t at;
    const char *bytes;
    const char *what;
    enum status status;
} formats[] = {
    {0, lfs_head, lfs_what, STATUS_DATA_LOSS},
    {0, "<!DOCTYPE", "a web page: the download was answered with it", STATUS_DATA_LOSS},
    {0, "<!doctype", "a web page: the download was answered with it", STATUS_DATA_LOSS},
    {0, "<html", "a web page: the download was answered with it", STATUS_DATA_LOSS},
    {0, "\x1f\x8b", "compressed by gzip: gunzip unpacks it", STATUS_DATA_LOSS},
    {0, "PK\3\4", "a ZIP archive, as PyTorch saves weights", STATUS_UNIMPLEMENTED},
    {0, "\x80\2", "a pickle of Python, as PyTorch saves weights", STATUS_UNIMPLEMENTED},
    {0, "\x80\4", "a pickle of Python, as PyTorch saves weights", STATUS_UNIMPLEMENTED},
    {0, "\x89HDF", "HDF5, as Keras saves weights", STATUS_UNIMPLEMENTED},
    {4, "TFL3", "a model of TensorFlow Lite", STATUS_UNIMPLEMENTED},
    {0, "lmgg", "a file of ggml from before GGUF", STATUS_UNIMPLEMENTED},
    {0, "fmgg", "a file of ggml from before GGUF", STATUS_UNIMPLEMENTED},
    {0, "tjgg", "a file of ggml from before GGUF", STATUS_UNIMPLEMENTED},
    {8, "{\"", "safetensors, which are read in a folder with config.json: give the folder",
     STATUS_UNIMPLEMENTED},
    {0, "{", "JSON: a model of Ollama is given as ollama:NAME, another as its folder",
     STATUS_UNIMPLEMENTED},
    {0, "FROM ", "a Modelfile of Ollama: give the file behind FROM, or ollama:NAME",
     STATUS_UNIMPLEMENTED},
};

static bool has_bytes(const uint8_t *data, size_t len, size_t at, const char *bytes)
{
    const size_t n = strlen(bytes);

    return len >= at && len - at >= n && memcmp(data + at, bytes, n) == 0;
}

/* A protobuf whose first field is a small number and whose second one is a text. */
static bool is_onnx(const uint8_t *data, size_t len)
{
    return len > 4 && data[0] == 0x08 && data[1] < 0x20 && data[2] == 0x12 && data[3] < 0x80;
}

enum status gguf_refuse_foreign(const uint8_t *data, size_t len, struct error *err)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (has_bytes(data, len, formats[i].at, formats[i].bytes))
            return error_set(err, formats[i].status, "not a GGUF file, but %s", formats[i].what);
    if (is_onnx(data, len))
        return error_set(err, STATUS_UNIMPLEMENTED, "not a GGUF file, but a model of ONNX");
    return error_set(err, STATUS_DATA_LOSS, "not a GGUF file: it does not begin with 'GGUF'");
}

enum status gguf_refuse_pointer(const struct gguf *g, struct error *err)
{
    char head[sizeof(lfs_head) - 1];
    enum status rc = STATUS_OK;

    if (g->size_bytes < sizeof(head) || g->size_bytes > LFS_MOST_BYTES)
        return rc;
    rc = gguf_copy(g, 0, sizeof(head), head, err);
    if (rc == STATUS_OK && memcmp(head, lfs_head, sizeof(head)) == 0)
        return error_set(err, STATUS_DATA_LOSS, "%s", lfs_what);
    return rc;
}
