/* SPDX-License-Identifier: MIT */
/* base/err.h - how latentd says that something went wrong.
 *
 * A function that can fail returns an err_code and takes a `struct err *` last.
 * The function that first knows which error it is fills the struct, with one
 * sentence that an operator can act on.  Every caller above only passes it up.
 * The error is logged once, where it stops travelling: at the request boundary
 * in daemon/, or in main().  So nothing is printed twice and nothing is lost.
 *
 * ERR_FULL is not a failure.  It is the everyday answer of a bounded resource;
 * it carries no message, and the scheduler turns it into waiting or preemption.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

enum err_code {
#define X(name, text) ERR_##name,
#include "base/err.def"
#undef X
};

struct err {
    enum err_code code;
    char msg[512]; /* one sentence, no newline, no trailing period: "what: why; what to do" */
};

/* Fills *e and returns `code`, so that a failing path is one line:
 *     return err_set(e, ERR_FORMAT, "%s: bad magic", path);
 * `e` may be NULL when the caller only wants the code. */
enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, for a failed system call: appends ": " and strerror(errno). */
enum err_code err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The fixed text of a code, for replies and metrics.  Never NULL. */
const char *err_text(enum err_code code);

/* Returns from the enclosing function if `call` failed.  Only for functions
 * that hold nothing yet; one that holds something writes `goto out` itself. */
#define TRY(call)                        \
    do {                                 \
        enum err_code try_code = (call); \
        if (try_code != ERR_OK)          \
            return try_code;             \
    } while (0)

#endif
