#include "compute/model_hash.h"

#include "tests/unit/base/suite.h"

/* FIPS 180-2's own examples. */
START_TEST(hash_is_sha256)
{
    char hash[MODEL_HASH_SIZE];
    struct error err;

    ck_assert_int_eq(model_hash(hash, "abc", 3, &err), STATUS_OK);
    ck_assert_str_eq(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_int_eq(model_hash(hash, "", 0, &err), STATUS_OK);
    ck_assert_str_eq(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
END_TEST

SUITE_MAIN("compute/model_hash", hash_is_sha256)
