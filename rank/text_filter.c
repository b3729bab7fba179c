/* SPDX-License-Identifier: MIT */
/* rank/text_filter.c - see text_filter.h.
 *
 * Two stages, both one byte at a time.  The first joins bytes to characters.  The second
 * runs one Knuth-Morris-Pratt automaton per stop string.  Its state is the length of the
 * longest beginning of the stop string with which the text ends; so the longest state of
 * all automata is what must be held back, and as it is the beginning of that stop string,
 * nothing has to be kept: it is read there when it is let go.
 *
 * Time is linear in the text for each stop string.
 */
#include "rank/text_filter.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct stop {
    char *text; /* [len]                                                        */
    size_t len;
    size_t *shorter; /* [len] shorter[i]: the next smaller state that state i + 1 implies */
    size_t state;
};

/* A character that has begun. */
struct character {
    char bytes[4];
    int have, want;    /* want: 0 between characters                        */
    uint8_t low, high; /* what the next byte may be                         */
};

struct text_filter {
    struct stop *stops; /* [n_stops] */
    int n_stops;
    struct character ch;
    const char *held; /* [n_held] borrowed from a stop string */
    size_t n_held;
    int ended;
};

/* ---- Characters --------------------------------------------------------- */

/* Begins a character.  Returns 0 if no character begins with this byte.  The ranges of the
 * second byte keep out overlong forms, surrogates and what lies above U+10FFFF. */
static int character_begin(struct character *ch, uint8_t byte)
{
    *ch = (struct character){ .low = 0x80, .high = 0xBF };
    if (byte < 0x80)
        ch->want = 1;
    else if (byte >= 0xC2 && byte <= 0xDF)
        ch->want = 2;
    else if (byte >= 0xE0 && byte <= 0xEF)
        ch->want = 3;
    else if (byte >= 0xF0 && byte <= 0xF4)
        ch->want = 4;
    else
        return 0;
    if (byte == 0xE0)
        ch->low = 0xA0;
    if (byte == 0xED)
        ch->high = 0x9F;
    if (byte == 0xF0)
        ch->low = 0x90;
    if (byte == 0xF4)
        ch->high = 0x8F;
    ch->bytes[ch->have++] = (char)byte;
    return 1;
}

/* Returns 0 if the character cannot go on with this byte. */
static int character_continue(struct character *ch, uint8_t byte)
{
    if (byte < ch->low || byte > ch->high)
        return 0;
    ch->low = 0x80;
    ch->high = 0xBF;
    ch->bytes[ch->have++] = (char)byte;
    return 1;
}

static int is_utf8(const char *text, size_t n)
{
    struct character ch = { .want = 0 };

    for (size_t i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)text[i];
        if (!(ch.want ? character_continue(&ch, byte) : character_begin(&ch, byte)))
            return 0;
        if (ch.have == ch.want)
            ch.want = 0;
    }
    return ch.want == 0;
}

/* ---- Stop strings ------------------------------------------------------- */

static void stop_step(struct stop *s, char byte)
{
    while (s->state && s->text[s->state] != byte)
        s->state = s->shorter[s->state - 1];
    if (s->text[s->state] == byte)
        s->state++;
}

static enum err_code stop_init(struct stop *s, const char *text, struct err *e)
{
    size_t len = strlen(text);

    if (!len)
        return err_set(e, ERR_USAGE, "stop string: it is empty; leave it out");
    if (!is_utf8(text, len))
        return err_set(e, ERR_USAGE, "stop string: it is not UTF-8 and can never occur");
    s->text = strdup(text);
    s->shorter = calloc(len, sizeof *s->shorter);
    s->len = len;
    if (!s->text || !s->shorter)
        return err_set(e, ERR_NOMEM, "stop string: no memory for %zu bytes", len);
    /* The automaton reads its own string from the second byte on. */
    for (size_t i = 1; i < len; i++) {
        stop_step(s, text[i]);
        s->shorter[i] = s->state;
    }
    s->state = 0;
    return ERR_OK;
}

/* One byte of text.  Of what was held, then the byte itself, what no stop string can still
 * begin in is let go. */
static void match_byte(struct text_filter *f, char byte, struct str *shown)
{
    const struct stop *longest = NULL, *complete = NULL;
    const char *held = f->held;
    size_t n_held = f->n_held, keep;

    if (f->ended)
        return;
    for (int i = 0; i < f->n_stops; i++) {
        struct stop *s = &f->stops[i];
        stop_step(s, byte);
        if (s->state == s->len && (!complete || s->len > complete->len))
            complete = s;
        if (!longest || s->state > longest->state)
            longest = s;
    }
    if (complete)
        longest = complete;
    f->ended = complete != NULL;
    keep = longest ? longest->state : 0;
    f->held = longest ? longest->text : NULL;
    f->n_held = f->ended ? 0 : keep;
    if (!keep) {
        str_append(shown, held, n_held);
        str_append(shown, &byte, 1);
    } else {
        str_append(shown, held, n_held + 1 - keep);
    }
}

static void match_text(struct text_filter *f, const char *text, size_t n, struct str *shown)
{
    for (size_t i = 0; i < n; i++)
        match_byte(f, text[i], shown);
}

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* ---- The interface ------------------------------------------------------ */

enum err_code text_filter_create(struct text_filter **out, const char *const *stops, int n_stops,
                                 struct err *e)
{
    struct text_filter *f = calloc(1, sizeof *f);
    enum err_code rc = ERR_OK;

    if (!f)
        return err_set(e, ERR_NOMEM, "text filter: no memory");
    f->stops = calloc((size_t)n_stops + 1, sizeof *f->stops); /* one more: never empty */
    if (!f->stops) {
        free(f);
        return err_set(e, ERR_NOMEM, "stop strings: no memory for %d", n_stops);
    }
    while (rc == ERR_OK && f->n_stops < n_stops) {
        rc = stop_init(&f->stops[f->n_stops], stops[f->n_stops], e);
        f->n_stops++;
    }
    if (rc != ERR_OK) {
        text_filter_free(&f);
        return rc;
    }
    *out = f;
    return ERR_OK;
}

void text_filter_free(struct text_filter **f)
{
    if (!*f)
        return;
    for (int i = 0; i < (*f)->n_stops; i++) {
        free((*f)->stops[i].text);
        free((*f)->stops[i].shorter);
    }
    free((*f)->stops);
    free(*f);
    *f = NULL;
}

static void take_byte(struct text_filter *f, uint8_t byte, struct str *shown)
{
    struct character *ch = &f->ch;

    if (ch->want && !character_continue(ch, byte)) {
        match_text(f, replacement, 3, shown);
        ch->want = 0; /* the byte may still begin the next character */
    }
    if (!ch->want && !character_begin(ch, byte)) {
        match_text(f, replacement, 3, shown);
        return;
    }
    if (ch->have == ch->want) {
        match_text(f, ch->bytes, (size_t)ch->have, shown);
        ch->want = 0;
    }
}

int text_filter_push(struct text_filter *f, const char *bytes, size_t n, struct str *shown)
{
    for (size_t i = 0; i < n && !f->ended; i++)
        take_byte(f, (uint8_t)bytes[i], shown);
    return f->ended;
}

void text_filter_flush(struct text_filter *f, struct str *shown)
{
    if (f->ch.want)
        match_text(f, replacement, 3, shown);
    str_append(shown, f->held, f->n_held);
    f->ch.want = 0;
    f->n_held = 0;
    f->ended = 1;
}
