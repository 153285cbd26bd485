#include "proto/exit.h"

#include <openssl/crypto.h>

bool exit_keeps_openssl(void)
{
    return OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL) == 1;
}
