/* The form of rows of inference.GRPCInferenceService (server/call/methods.h). A row leaves out the
 * service's name: it says "ServerLive" and server_live_request. */
#ifndef SERVER_API_KSERVE_METHODS_H
#define SERVER_API_KSERVE_METHODS_H

#include "server/call/methods.h"

#define INFERENCE_TABLE(table, METHODS) \
    CALL_TABLE_BY(table, METHODS, INFERENCE_FUNCTION, INFERENCE_ROW)
#define INFERENCE_FUNCTION(form, access, name, request, response, f) \
    CALL_FUNCTION(form, access, name, inference__##request, inference__##response, f)
#define INFERENCE_ROW(form, access, name, request, response, f)                           \
    CALL_ROW(form, access, "/inference.GRPCInferenceService/" name, inference__##request, \
             inference__##response, f)

#endif
