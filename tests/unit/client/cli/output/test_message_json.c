#include "client/cli/output/message_json.h"

#include <check.h>
#include <stdlib.h>

#include "parley/v1/conversations.pb-c.h"
#include "parley/v1/sampling.pb-c.h"

static void check_json(const ProtobufCMessage *message, const char *wanted)
{
    json_t *json = message_json(message);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6));

    ck_assert_str_eq(text, wanted);
    free(text);
    json_decref(json);
}

/* Zeros, empty texts and empty lists are there; messages that are not set are not. */
START_TEST(what_is_empty_is_there)
{
    Parley__V1__TurnPiece piece = PARLEY__V1__TURN_PIECE__INIT;
    Parley__V1__TurnDone done = PARLEY__V1__TURN_DONE__INIT;

    check_json(&piece.base, "{\"text\":\"\",\"token_ids\":[],\"logprobs\":[],\"next_index\":0,"
                            "\"tool_calls\":[],\"reasoning\":\"\"}");
    check_json(&done.base, "{\"finish_reason\":\"\",\"turn\":0}");
}
END_TEST

/* Lists of numbers and of messages, and messages in messages, are written whole. */
START_TEST(what_is_nested_is_written)
{
    int32_t ids[] = {7, -1};
    Parley__V1__TopLogprob top = PARLEY__V1__TOP_LOGPROB__INIT;
    Parley__V1__TopLogprob *tops[] = {&top};
    Parley__V1__TokenLogprob logprob = PARLEY__V1__TOKEN_LOGPROB__INIT;
    Parley__V1__TokenLogprob *logprobs[] = {&logprob};
    Parley__V1__TurnPiece piece = PARLEY__V1__TURN_PIECE__INIT;

    top.id = 7;
    top.logprob = -0.5f;
    logprob.logprob = -0.25f;
    logprob.top = tops;
    logprob.n_top = 1;
    piece.text = (char *)"a\"b\n";
    piece.token_ids = ids;
    piece.n_token_ids = 2;
    piece.logprobs = logprobs;
    piece.n_logprobs = 1;
    check_json(&piece.base,
               "{\"text\":\"a\\\"b\\n\",\"token_ids\":[7,-1],"
               "\"logprobs\":[{\"logprob\":-0.25,\"top\":[{\"id\":7,\"logprob\":-0.5}]}],"
               "\"next_index\":0,\"tool_calls\":[],\"reasoning\":\"\"}");
}
END_TEST

/* A map of texts is an object. */
START_TEST(a_map_is_an_object)
{
    Parley__V1__ConversationsForkRequest__MetadataEntry one =
        PARLEY__V1__CONVERSATIONS_FORK_REQUEST__METADATA_ENTRY__INIT;
    Parley__V1__ConversationsForkRequest__MetadataEntry *entries[] = {&one};
    Parley__V1__ConversationsForkRequest fork = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__INIT;

    one.key = (char *)"who";
    one.value = (char *)"ada";
    fork.conversation = (char *)"c";
    fork.metadata = entries;
    fork.n_metadata = 1;
    check_json(&fork.base,
               "{\"conversation\":\"c\",\"metadata\":{\"who\":\"ada\"},\"request_id\":\"\"}");
}
END_TEST

/* Of a oneof, only the member that is set is there; it may be a zero of its type. */
START_TEST(a_oneof_shows_its_member)
{
    Parley__V1__TurnProgress progress = PARLEY__V1__TURN_PROGRESS__INIT;
    Parley__V1__ChatEvent event = PARLEY__V1__CHAT_EVENT__INIT;

    event.tag = 1;
    check_json(&event.base, "{\"tag\":1}");
    event.event_case = PARLEY__V1__CHAT_EVENT__EVENT_PROGRESS;
    event.progress = &progress;
    check_json(&event.base, "{\"tag\":1,\"progress\":{\"done\":0,\"total\":0}}");
}
END_TEST

/* A map whose keys are numbers is an object, too. */
START_TEST(a_map_of_numbers_is_an_object)
{
    Parley__V1__Sampling__LogitBiasEntry entry = PARLEY__V1__SAMPLING__LOGIT_BIAS_ENTRY__INIT;
    Parley__V1__Sampling__LogitBiasEntry *entries[] = {&entry};
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;

    entry.key = -7;
    entry.value = 2;
    sampling.logit_bias = entries;
    sampling.n_logit_bias = 1;
    check_json(&sampling.base, "{\"logit_bias\":{\"-7\":2.0},\"stop\":[]}");
}
END_TEST

/* Fields that know whether they are set are there only then. */
START_TEST(an_optional_field_shows_when_set)
{
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;

    sampling.has_temperature = 1;
    check_json(&sampling.base, "{\"temperature\":0.0,\"logit_bias\":{},\"stop\":[]}");
}
END_TEST

/* Text that is not UTF-8, and numbers that JSON has not, do not break the object. */
START_TEST(what_json_cannot_say_is_left)
{
    Parley__V1__TopLogprob top = PARLEY__V1__TOP_LOGPROB__INIT;
    Parley__V1__Message message = PARLEY__V1__MESSAGE__INIT;

    message.role = (char *)"user";
    message.text = (char *)"\xff";
    check_json(&message.base,
               "{\"role\":\"user\",\"text\":\"\xef\xbf\xbd\",\"name\":\"\",\"tool_calls\":[],"
               "\"tool_call_id\":\"\",\"reasoning\":\"\"}");
    top.id = 1;
    top.logprob = __builtin_nanf("");
    check_json(&top.base, "{\"id\":1}");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client/cli/message_json");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int n_failed;

    tcase_add_test(all, what_is_empty_is_there);
    tcase_add_test(all, what_is_nested_is_written);
    tcase_add_test(all, a_map_is_an_object);
    tcase_add_test(all, a_map_of_numbers_is_an_object);
    tcase_add_test(all, a_oneof_shows_its_member);
    tcase_add_test(all, an_optional_field_shows_when_set);
    tcase_add_test(all, what_json_cannot_say_is_left);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
