/* SPDX-License-Identifier: MIT */
/* cli/main.c - `latent SUBCOMMAND`: finds the command, reads its options, runs it.
 *
 * Exit status: 0, 1 a failure at run time, 2 wrong usage, 3 does not fit into memory.  Every
 * failure is one line on stderr: what, why, what to do.  Only a reader of stdout that went away is
 * not worth a line.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/draft.h"
#include "base/log.h"
#include "cli/commands.h"
#include "options/options.h"
#include "cli/output.h"
#include "session/session.h"

static void print_overview(FILE *to)
{
    fprintf(to, "usage: latent SUBCOMMAND [options]\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (command_runs[i])
            fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].help);
    fprintf(to, "  %-12s %s\n", "help",
            "this page, or that of a subcommand: latent help SUBCOMMAND");
    fprintf(to, "\nlatent --version prints the version.\n");
}

static enum err_code want_command(const char *name, enum command_id *out, struct err *e)
{
    *out = command_find(name);
    if (*out == COMMAND_COUNT)
        return err_set(e, ERR_USAGE,
                       "%.60s: no such subcommand; the nearest is %s, latent help lists all", name,
                       command_nearest(name));
    if (!command_runs[*out])
        return err_set(e, ERR_USAGE, "%s: not in this version yet; latent help lists what is",
                       name);
    return ERR_OK;
}

static enum err_code run_help(int argc, char *const *argv, struct err *e)
{
    enum command_id id;

    if (argc == 0) {
        print_overview(stdout);
        return ERR_OK;
    }
    TRY(want_command(argv[0], &id, e));
    options_print_help(stdout, id);
    return ERR_OK;
}

/* Under mpirun only rank 0 runs the command.  Ranks that failed have said so, and MPI must not be
 * ended by those that are left. */
static enum err_code run_with_ranks(const struct options *o, struct err *e)
{
    int follows;
    enum err_code rc = session_start(o, &follows, e);

    if (rc == ERR_OK && !follows)
        rc = command_runs[o->command](o, e);
    int status = session_end();
    if (status) {
        fflush(stdout);
        _exit(status);
    }
    return rc;
}

static enum err_code run_command(const char *name, int argc, char *const *argv, struct err *e)
{
    struct options o = { 0 };
    enum command_id id;

    TRY(want_command(name, &id, e));
    enum err_code rc = options_parse(&o, id, argc, argv, e);
    if (rc == ERR_OK && o.help) {
        if (!session_follows())
            options_print_help(stdout, id);
    } else if (rc == ERR_OK) {
        log_set_quiet(o.quiet);
        rc = run_with_ranks(&o, e);
    }
    options_free(&o);
    return rc;
}

static enum err_code dispatch(int argc, char *const *argv, struct err *e)
{
    /* What runs on no ranks happens once, however many processes mpirun has started. */
    if (!session_runs_ranks(argc < 2 ? COMMAND_COUNT : command_find(argv[1])) && session_follows())
        return ERR_OK;
    if (argc < 2)
        return err_set(e, ERR_USAGE, "no subcommand: nothing to do; latent help lists them");
    if (strcmp(argv[1], "--version") == 0) {
        printf("latent %s\n", LATENTD_VERSION);
        return ERR_OK;
    }
    if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return run_help(argc - 2, argv + 2, e);
    return run_command(argv[1], argc - 2, argv + 2, e);
}

int main(int argc, char **argv)
{
    struct err e = { 0 };

    log_keep_streams();
    signal(SIGPIPE, SIG_IGN); /* writing then fails with EPIPE, like any other failure */
    draft_drop_on_signals();
    enum err_code rc = dispatch(argc, argv, &e);
    if (rc == ERR_OK)
        rc = output_flush(&e);
    if (rc == ERR_OK)
        return 0;
    session_let_rank_0_speak();
    if (rc != ERR_CANCELLED)
        log_error("%s", *e.msg ? e.msg : err_text(rc));
    return rc == ERR_USAGE ? 2 : rc == ERR_NOFIT ? 3 : 1;
}
