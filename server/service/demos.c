#include "server/service/demos.h"

#include <stdio.h>
#include <string.h>

static const char overworld_demo[] = "parlai.chat_service.tasks.overworld_demo.worlds";
static const char chatbot[] = "parlai.chat_service.tasks.chatbot.worlds";

struct demo_class {
    const char *module, *name, *world;
    enum scene_kind kind;
    struct service_script script; /* without its world */
};

/* The texts are those that ParlAI's demos send (MIT licence), byte for byte: people and programs
 * that know the demos wait for them. */
static const struct demo_class classes[] = {
    {overworld_demo,
     "MessengerOverworld",
     "menu",
     SCENE_MENU,
     {.welcome = "Welcome to the overworld for the ParlAI messenger demo. Choose one of the demos "
                 "from the listed quick replies. ",
      .invalid = "Invalid option. Choose one of the demos from the listed quick replies. ",
      .moving = "Transferring to ",
      .has_exit = true,
      .exit = "EXIT",
      .keeps_exit = true}},
    {overworld_demo,
     "MessengerEchoOnboardWorld",
     "form",
     SCENE_FORM,
     {.welcome = "Welcome to the onboarding world for our echo bot. The next message you send will "
                 "be echoed. Use [DONE] to finish the chat."}},
    {overworld_demo, "MessengerEchoTaskWorld", "echo", SCENE_TASK, {0}},
    {overworld_demo,
     "MessengerOnboardDataOnboardWorld",
     "form",
     SCENE_FORM,
     {.questions = {{.key = "name",
                     .text = "Welcome to the onboarding world the onboarding data demo.\nEnter "
                             "your name."},
                    {.key = "color", .text = "\nEnter your favorite color."}},
      .n_questions = 2}},
    {overworld_demo,
     "MessengerOnboardDataTaskWorld",
     "tell",
     SCENE_TASK,
     {.welcome = "During onboarding, you said your name was {name} and your favorite color was "
                 "{color}"}},
    {overworld_demo,
     "MessengerChatOnboardWorld",
     "form",
     SCENE_FORM,
     {.questions = {{.key = "user_name",
                     .text = "Welcome to the onboarding world free chat. Enter your display "
                             "name."}},
      .n_questions = 1,
      .closing = "You will be matched with a random person. Say [DONE] to end the chat."}},
    {overworld_demo,
     "MessengerChatTaskWorld",
     "relay",
     SCENE_TASK,
     {.closing = "The other agent has ended the chat."}},
    {chatbot,
     "MessengerOverworld",
     "menu",
     SCENE_MENU,
     {.welcome = "Welcome to the overworld for the ParlAI messenger chatbot demo. Please type "
                 "\"begin\" to start, or \"exit\" to exit",
      .invalid = "Invalid option. Please type \"begin\".",
      .has_exit = true,
      .exit = "exit",
      .ignores_case = true}},
    {chatbot, "MessengerBotChatOnboardWorld", "form", SCENE_FORM, {0}},
    {chatbot,
     "MessengerBotChatTaskWorld",
     "chat",
     SCENE_TASK,
     {.welcome = "Welcome to the ParlAI Chatbot demo. You are now paired with a bot - feel free to "
                 "send a message.Type [DONE] to finish the chat, or [RESET] to reset the dialogue "
                 "history.",
      .closing = "The other agent has ended the chat."}},
};

enum { N_CLASSES = sizeof(classes) / sizeof(classes[0]) };

bool demo_has_module(const char *module)
{
    return strcmp(module, overworld_demo) == 0 || strcmp(module, chatbot) == 0;
}

static const struct demo_class *demo_class_find(const char *module, enum scene_kind kind,
                                                const char *name)
{
    for (size_t i = 0; i < N_CLASSES; i++)
        if (strcmp(classes[i].module, module) == 0 && classes[i].kind == kind &&
            strcmp(classes[i].name, name) == 0)
            return &classes[i];
    return NULL;
}

bool demo_find(struct service_script *out, const char *module, enum scene_kind kind,
               const char *class_name)
{
    const struct demo_class *c = demo_class_find(module, kind, class_name);

    if (c == NULL)
        return false;
    *out = c->script;
    out->world = service_world_find(kind, c->world);
    return true;
}

const char *demo_title(const char *module, const char *pool)
{
    return strcmp(module, chatbot) == 0 && strcmp(pool, "default") == 0 ? "begin" : pool;
}

void demo_list(const char *module, enum scene_kind kind, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < N_CLASSES && at < size; i++)
        if (strcmp(classes[i].module, module) == 0 && classes[i].kind == kind)
            at +=
                (size_t)snprintf(out + at, size - at, "%s%s", at == 0 ? "" : ", ", classes[i].name);
}

void demo_list_modules(char *out, size_t size)
{
    (void)snprintf(out, size, "%s, %s", overworld_demo, chatbot);
}
