/* SPDX-License-Identifier: MIT */
/* model/settings.h - hyper-parameters as key, value and source, before they are numbers
 * in struct hparams.
 *
 * hparams.def lists the keys.  settings_read takes what the file has; whatever
 * hparams.c then completes or corrects goes through settings_set_*, so that the note
 * shown to the user and the value that is computed with are one thing.
 */
#ifndef MODEL_SETTINGS_H
#define MODEL_SETTINGS_H

#include "model/hparams.h"

enum setting_key {
#define X(KEY, key, kind, low, high, need) SETTING_##KEY,
#include "model/hparams.def"
#undef X
    SETTING_COUNT
};

struct setting {
    int known;
    enum hparam_source source;
    int64_t integer; /* INT and FLAG */
    double real;     /* REAL         */
    char word[32];   /* WORD, SHOWN  */
    char why[96];
};

struct settings {
    const struct gguf *gguf; /* borrowed */
    struct setting at[SETTING_COUNT];
};

/* Reads every key of the table that the file has.  A per-layer array counts as a scalar if
 * all its elements are equal.
 * Errors: ERR_FORMAT, a needed key is missing, or one has a wrong type or an impossible value. */
enum err_code settings_read(struct settings *s, const struct gguf *g, struct err *e);

static inline int settings_has(const struct settings *s, enum setting_key k)
{
    return s->at[k].known;
}

static inline int64_t settings_int(const struct settings *s, enum setting_key k)
{
    return s->at[k].integer;
}

static inline double settings_real(const struct settings *s, enum setting_key k)
{
    return s->at[k].real;
}

/* Gives a key a value that is not the file's; the format says from what it follows. */
void settings_set_int(struct settings *s, enum setting_key k, int64_t value,
                      enum hparam_source source, const char *why, ...)
    __attribute__((format(printf, 5, 6)));
void settings_set_real(struct settings *s, enum setting_key k, double value,
                       enum hparam_source source, const char *why, ...)
    __attribute__((format(printf, 5, 6)));
void settings_set_word(struct settings *s, enum setting_key k, const char *value,
                       enum hparam_source source, const char *why, ...)
    __attribute__((format(printf, 5, 6)));

/* The key without the architecture. */
const char *settings_key(enum setting_key k);

/* One note for each known setting, in the order of the table.  *notes is owned by the caller.
 * Errors: ERR_NOMEM. */
enum err_code settings_notes(const struct settings *s, struct hparam_note **notes, int *n,
                             struct err *e);

#endif
