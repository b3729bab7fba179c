/* SPDX-License-Identifier: MIT */
/* base/log.h - lines for the operator, on stderr.
 *
 * A line is lower case, says the exact cause and what to do, and has no newline
 * of its own.  Results go to stdout; nothing else does.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdint.h>

/* "latent: text" or "latent: warning: text".  The prefix is the program's name. */
void log_set_program(const char *name);
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* First of all in a program: where its caller has closed descriptors 0 to 2, no file or socket may
 * become one of them, and get lines and results.  They fail as closed ones do. */
void log_keep_streams(void);

/* With quiet set, log_info prints nothing; warnings and errors still appear. */
void log_set_quiet(int quiet);

/* With lossy set, no line waits for who reads stderr: while it is full lines are left out, and the
 * next that fits says how many. */
void log_set_lossy(int lossy);

/* Progress of long work: a bar that rewrites itself on a terminal, otherwise a
 * plain line every ten seconds; both with the estimated time to the end. */
struct progress {
    const char *what; /* borrowed: "loading", "scoring" */
    int64_t total, done;
    double slowest; /* if not 0: how much of 1 is done by who will be the last, for the time left */
    char more[80];  /* for the end of the line */
    double started_s, shown_s;
    int on_terminal, visible;
};
void progress_start(struct progress *p, const char *what, int64_t total);
void progress_update(struct progress *p, int64_t done);
void progress_end(struct progress *p);

/* Seconds of the monotonic clock. */
double clock_seconds(void);

#endif
