#include "proto/descriptors.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "server/api/services.h"
#include "tests/unit/base/suite.h"

static bool is_served(const struct call_table *const *services, size_t n, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < services[i]->n; k++) {
            const char *path = services[i]->rows[k].path + 1;

            if (strncmp(path, name, len) == 0 && path[len] == '/')
                return true;
        }
    }
    return false;
}

/* Every method that is served is described, and every service that is described is served. */
START_TEST(test_served)
{
    size_t n, n_found = 0;
    const struct call_table *const *services = services_tables(&n);

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < services[i]->n; k++) {
            char name[160];
            char *slash;

            ck_assert_uint_lt(strlen(services[i]->rows[k].path), sizeof(name));
            (void)snprintf(name, sizeof(name), "%s", services[i]->rows[k].path + 1);
            slash = strchr(name, '/');
            *slash = '.';
            ck_assert_msg(descriptor_find_symbol(name) != NULL, "%s", name);
        }
    }
    for (size_t i = 0; i < descriptor_n_services; i++)
        n_found += is_served(services, n, descriptor_services[i]);
    ck_assert_uint_eq(n_found, descriptor_n_services);
}
END_TEST

/* Names are found whole; the files they are in import what is there. */
START_TEST(test_names)
{
    const struct descriptor_symbol *s = descriptor_find_symbol("inference.ModelConfig");

    ck_assert_ptr_nonnull(s);
    ck_assert_int_eq(s->kind, DESCRIPTOR_MESSAGE);
    ck_assert_str_eq(descriptor_files[s->file].name, "inference/model_config.proto");
    ck_assert(descriptor_find_symbol("inference.ModelConfig.max_batch_size") != NULL);
    ck_assert(descriptor_find_symbol("inference.TYPE_FP32") != NULL);
    ck_assert_int_eq(descriptor_find_symbol("inference.ModelConfig.ParametersEntry")->kind,
                     DESCRIPTOR_MAP_ENTRY);
    ck_assert_int_eq(descriptor_find_symbol("parley.v1.Conversations.List")->kind,
                     DESCRIPTOR_READER);
    ck_assert_int_eq(descriptor_find_symbol("parley.v1.Conversations.Close")->kind,
                     DESCRIPTOR_NAME);
    ck_assert_ptr_null(descriptor_find_symbol("inference"));
    ck_assert_ptr_null(descriptor_find_symbol(""));
    ck_assert_ptr_null(descriptor_find_symbol("inference.ModelConfi"));
    ck_assert_ptr_null(descriptor_find_file("model_config.proto"));
    for (size_t i = 1; i < descriptor_n_symbols; i++)
        ck_assert(strcmp(descriptor_symbols[i - 1].name, descriptor_symbols[i].name) < 0);
    for (size_t i = 0; i < descriptor_n_files; i++) {
        ck_assert_ptr_eq(descriptor_find_file(descriptor_files[i].name), &descriptor_files[i]);
        for (size_t k = 0; k < descriptor_files[i].n_imports; k++)
            ck_assert_uint_lt(descriptor_files[i].imports[k], descriptor_n_files);
    }
}
END_TEST

SUITE_MAIN("proto/descriptors", test_served, test_names)
