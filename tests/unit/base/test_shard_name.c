#include "base/shard_name.h"

#include <string.h>

#include "tests/unit/base/suite.h"

/* A shard's name is taken apart, with and without folders. */
START_TEST(names_of_shards_are_read)
{
    struct shard_name s;

    ck_assert(shard_name_parse(&s, "m-00002-of-00012.gguf", ".gguf"));
    ck_assert(s.prefix_len == 1 && s.number == 2 && s.n == 12);
    ck_assert(shard_name_parse(&s, "/a/model-00001-of-00001.safetensors", ".safetensors"));
    ck_assert(s.prefix_len == strlen("/a/model") && s.number == 1 && s.n == 1);
}
END_TEST

/* Other names are no shards', and nothing is written. */
START_TEST(other_names_are_not)
{
    static const char *const names[] = {
        "m.gguf",
        "",
        ".gguf",
        "-00001-of-00002.gguf",
        "m-00000-of-00002.gguf",
        "m-00003-of-00002.gguf",
        "m-0001-of-00002.gguf",
        "m-00001-of-0000x.gguf",
        "m-00001-if-00002.gguf",
        "m_00001-of-00002.gguf",
        "m-00001-of-00002.gguf.part",
        "m-00001-of-00002.safetensors",
    };
    struct shard_name s = {7, 7, 7};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ck_assert(!shard_name_parse(&s, names[i], ".gguf"));
        ck_assert(s.prefix_len == 7 && s.number == 7 && s.n == 7);
    }
}
END_TEST

SUITE_MAIN("base/shard_name", names_of_shards_are_read, other_names_are_not)
