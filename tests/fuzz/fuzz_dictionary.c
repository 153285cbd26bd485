/* A dictionary file of any bytes is read or refused with one line of text; a dictionary that was
 * read has each word once, and any bytes can be counted as text. */
#include <assert.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/target.h"
#include "worlds/baselines/dictionary.h"

static void check_words(const struct dictionary *d)
{
    for (size_t i = 0; i < dictionary_n(d); i++) {
        uint64_t count;
        struct text word = dictionary_word(d, i, &count);

        assert(word.len > 0 && dictionary_count(d, word) == count);
    }
}

static void read_file(const uint8_t *data, size_t size_bytes)
{
    int fd = memfd_create("dictionary", MFD_CLOEXEC);
    struct dictionary *d = NULL;
    struct error err;
    char path[64];

    assert(fd >= 0 && write(fd, data, size_bytes) == (ssize_t)size_bytes);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (dictionary_read(&d, path, &err) == STATUS_OK)
        check_words(d);
    else
        assert(err.text[0] != '\0');
    dictionary_close(d);
    (void)close(fd);
}

static void count_text(const uint8_t *data, size_t size_bytes)
{
    const struct text text = {(const char *)data, size_bytes};
    struct dictionary *d;
    struct error err;
    enum status rc = dictionary_open(&d, &err);

    assert(rc == STATUS_OK);
    rc = dictionary_add(d, text, &err);
    assert(rc == STATUS_OK);
    check_words(d);
    dictionary_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    read_file(data, size_bytes);
    count_text(data, size_bytes);
    return 0;
}
