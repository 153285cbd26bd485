/* Locates the module that libwebsockets needs for libuv. */
#ifndef SERVER_HTTP_EVENT_LIB_H
#define SERVER_HTTP_EVENT_LIB_H

/* Tells libwebsockets where the module is, by its environment variable. To be called before
 * lws_create_context. */
void event_lib_locate(void);

#endif
