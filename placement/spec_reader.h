/* SPDX-License-Identifier: MIT */
/* placement/spec_reader.h - the words and numbers of a device description. */
#ifndef PLACEMENT_SPEC_READER_H
#define PLACEMENT_SPEC_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A text that is being read.  Blanks, line ends and # comments are skipped behind every word. */
struct spec {
    const char *name; /* of the option or file, for errors */
    const char *text, *at;
};

struct spec_word {
    const char *text; /* not NUL-terminated */
    size_t len;
};

enum { SPEC_MAX_BYTES = 1 << 20 };

/* "NAME: text, at column N" (or line and column of a file). */
enum err_code spec_error(const struct spec *s, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void spec_skip(struct spec *s);
int spec_take(struct spec *s, char c);
int spec_literal(struct spec *s, const char *word);
int spec_next_is(const struct spec *s, char c);
int spec_at_digit(const struct spec *s);

/* Letters, digits, '-', '_'.  Errors: ERR_USAGE. */
enum err_code spec_name(struct spec *s, struct spec_word *word, struct err *e);

/* A whole number in min..max; `what` names it. */
enum err_code spec_count(struct spec *s, int min, int max, const char *what, int *out,
                         struct err *e);

/* A number with K, M, G, T (1000) or Ki, Mi, Gi, Ti (1024) and perhaps B; `what` names it. */
enum err_code spec_size(struct spec *s, double min, double max, const char *what, double *out,
                        struct err *e);

/* A time with ns, us, ms or s. */
enum err_code spec_microseconds(struct spec *s, double *out, struct err *e);

/* Whether "N*letter" follows; then takes "N*". */
int spec_channels_follow(struct spec *s, int *n);

/* The whole file as text, owned by the caller.  Errors: ERR_IO, ERR_USAGE (too long, a NUL),
 * ERR_NOMEM. */
enum err_code spec_read_file(const char *path, char **text, struct err *e);

#endif
