/* SPDX-License-Identifier: MIT */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (e) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(e->msg, sizeof e->msg, fmt, args);
        va_end(args);
        e->code = code;
    }
    return code;
}

enum err_code err_sys(struct err *e, const char *fmt, ...)
{
    int saved = errno; /* vsnprintf may change it */

    if (e) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(e->msg, sizeof e->msg, fmt, args);
        va_end(args);

        size_t n = strlen(e->msg);
        snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(saved));
        e->code = ERR_IO;
    }
    return ERR_IO;
}

const char *err_text(enum err_code code)
{
    switch (code) {
#define X(name, text) \
    case ERR_##name:  \
        return text;
#include "base/err.def"
#undef X
    }
    return "unknown error";
}
