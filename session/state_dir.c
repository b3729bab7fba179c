/* SPDX-License-Identifier: MIT */
#include "session/state_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The XDG folders are defined by environment variables, so this file reads two of them. */
static enum err_code put_folder(struct str *path, const char *state_dir, struct err *e)
{
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (state_dir)
        str_puts(path, state_dir);
    else if (xdg && *xdg == '/')
        str_printf(path, "%s/latentd", xdg);
    else if (home && *home == '/')
        str_printf(path, "%s/.local/state/latentd", home);
    else
        return err_set(e, ERR_USAGE,
                       "no home for the profile: neither XDG_STATE_HOME nor HOME is "
                       "set; name a folder with --state-dir");
    return path->failed ? err_set(e, ERR_NOMEM, "no memory for the path of the profile") : ERR_OK;
}

/* mkdir -p */
static enum err_code make_folders(struct str *path, struct err *e)
{
    for (size_t i = 1; i <= path->len; i++) {
        char c = path->data[i];
        if (c != '/' && c != 0)
            continue;
        path->data[i] = 0;
        int rc = mkdir(path->data, 0755);
        if (rc != 0 && errno != EEXIST)
            return err_sys(e, "%s: cannot be created", path->data);
        path->data[i] = c;
    }
    return ERR_OK;
}

enum err_code state_dir_profile(struct str *path, const char *state_dir, int create, struct err *e)
{
    TRY(put_folder(path, state_dir, e));
    if (create)
        TRY(make_folders(path, e));
    str_puts(path, "/devices.json");
    return path->failed ? err_set(e, ERR_NOMEM, "no memory for the path of the profile") : ERR_OK;
}
