/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const char *program = "latent";
static int quiet_level, is_lossy;
static unsigned long n_lost; /* lines; under the lock of stderr */

void log_keep_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) /* then the next to be opened is this one */
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void log_set_program(const char *name)
{
    program = name;
}

void log_set_quiet(int quiet)
{
    quiet_level = quiet;
}

void log_set_lossy(int lossy)
{
    is_lossy = lossy;
}

/* A pipe takes a line whole or not at all: it is shorter than a page. */
static int takes_line(void)
{
    struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

    return !is_lossy || poll(&p, 1, 0) != 0;
}

/* One write per line, so that lines of several ranks do not mix.  What files and users wrote is
 * part of it: their control bytes must neither end the line nor reach the terminal. */
static void print_line(const char *kind, const char *fmt, va_list args)
{
    char line[2048];

    vsnprintf(line, sizeof line, fmt, args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    flockfile(stderr);
    if (n_lost && takes_line()) {
        fprintf(stderr, "%s: warning: %lu lines are left out: nobody took them\n", program, n_lost);
        n_lost = 0;
    }
    if (!n_lost && takes_line())
        fprintf(stderr, "%s: %s%s\n", program, kind, line);
    else
        n_lost++;
    funlockfile(stderr);
}

void log_info(const char *fmt, ...)
{
    va_list args;

    if (quiet_level)
        return;
    va_start(args, fmt);
    print_line("", fmt, args);
    va_end(args);
}

void log_warn(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_line("warning: ", fmt, args);
    va_end(args);
}

void log_error(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_line("", fmt, args);
    va_end(args);
}

double clock_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Progress ----------------------------------------------------------- */

static void progress_show(struct progress *p, double now)
{
    double spent = now - p->started_s;
    double part = p->total > 0 ? (double)p->done / (double)p->total : 0;
    double slowest = p->slowest > 0 ? p->slowest : part;
    double left = slowest > 0 ? spent / slowest - spent : 0;

    p->visible = 1;
    p->shown_s = now;
    if (p->on_terminal)
        fprintf(stderr, "\r%s: %s %3.0f%%, %.0f s left%s \033[K", program, p->what, 100 * part,
                left, p->more);
    else
        fprintf(stderr, "%s: %s %.0f%%, %.0f s left%s\n", program, p->what, 100 * part, left,
                p->more);
    fflush(stderr);
}

void progress_start(struct progress *p, const char *what, int64_t total)
{
    double now = clock_seconds();

    *p = (struct progress){
        .what = what, .total = total, .started_s = now, .shown_s = now, .on_terminal = isatty(2)
    };
}

void progress_update(struct progress *p, int64_t done)
{
    double now = clock_seconds();
    double every = p->on_terminal ? 0.2 : 10;

    p->done = done;
    if (!quiet_level && now - p->shown_s >= every)
        progress_show(p, now);
}

void progress_end(struct progress *p)
{
    if (p->visible && p->on_terminal) {
        fprintf(stderr, "\r\033[K"); /* the bar leaves nothing behind */
        fflush(stderr);
    }
    p->visible = 0;
}
