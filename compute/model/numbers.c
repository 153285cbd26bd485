#include "compute/model/numbers.h"

#include "compute/gguf/gguf.h"
#include "compute/model/arch/arch.h"

enum status numbers_read_size(size_t *out, const struct gguf *g, const struct arch *a,
                              const char *name, uint64_t max, struct error *err)
{
    char key[ARCH_KEY_MAX];
    uint64_t value;
    enum status rc = gguf_get_u64(g, arch_key(key, a, name), &value, err);

    if (rc != STATUS_OK)
        return rc;
    if (value < 1 || value > max)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' is %llu, it must be from 1 to %llu",
                         gguf_path(g), key, (unsigned long long)value, (unsigned long long)max);
    *out = (size_t)value;
    return STATUS_OK;
}

enum status numbers_read_optional_size(size_t *out, const struct gguf *g, const struct arch *a,
                                       const char *name, uint64_t max, struct error *err)
{
    enum status rc = numbers_read_size(out, g, a, name, max, err);

    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

enum status numbers_read_optional_count(size_t *out, const struct gguf *g, const struct arch *a,
                                        const char *name, uint64_t max, struct error *err)
{
    char key[ARCH_KEY_MAX];
    uint64_t value;
    enum status rc = gguf_get_u64(g, arch_key(key, a, name), &value, err);

    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    if (value > max)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' is %llu, it must be at most %llu",
                         gguf_path(g), key, (unsigned long long)value, (unsigned long long)max);
    *out = (size_t)value;
    return STATUS_OK;
}

enum status numbers_read_greatest(size_t *out, const struct gguf *g, const struct arch *a,
                                  const char *name, size_t n, uint64_t min, uint64_t max,
                                  struct error *err)
{
    char key[ARCH_KEY_MAX];
    size_t len;
    int64_t most = 0;

    if (gguf_array_len(g, arch_key(key, a, name), &len, err) != STATUS_OK)
        return numbers_read_size(out, g, a, name, max, err);
    for (size_t i = 0; i < n; i++) {
        int64_t value;
        enum status rc = gguf_array_i64(g, key, i, &value, err);

        if (rc != STATUS_OK)
            return rc;
        if (value < (int64_t)min || (uint64_t)value > max)
            return error_set(err, STATUS_DATA_LOSS,
                             "%s: key '%s' has the number %lld for layer %zu, it must be from "
                             "%llu to %llu",
                             gguf_path(g), key, (long long)value, i, (unsigned long long)min,
                             (unsigned long long)max);
        most = value > most ? value : most;
    }
    *out = (size_t)(most > 0 ? most : 1);
    return STATUS_OK;
}

size_t numbers_of_layer(const struct gguf *g, const struct arch *a, const char *name, size_t layer,
                        size_t otherwise)
{
    char key[ARCH_KEY_MAX];
    struct error ignored;
    int64_t value;

    if (gguf_array_i64(g, arch_key(key, a, name), layer, &value, &ignored) != STATUS_OK)
        return otherwise;
    return (size_t)value;
}

enum status numbers_read(double *out, const struct gguf *g, const char *key, struct error *err)
{
    uint64_t integer;
    enum status rc = gguf_get_f64(g, key, out, err);

    if (rc != STATUS_DATA_LOSS)
        return rc;
    rc = gguf_get_u64(g, key, &integer, err);
    if (rc == STATUS_OK)
        *out = (double)integer;
    return rc;
}

enum status numbers_read_optional(double *out, const struct gguf *g, const struct arch *a,
                                  const char *name, double min, double max, struct error *err)
{
    char key[ARCH_KEY_MAX];
    double value;
    enum status rc = numbers_read(&value, g, arch_key(key, a, name), err);

    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    if (!(value >= min && value <= max))
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: key '%s' is %.17g, it must be from %.9g to %.9g", gguf_path(g), key,
                         value, min, max);
    *out = value;
    return STATUS_OK;
}
