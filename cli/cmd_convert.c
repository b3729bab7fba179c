/* SPDX-License-Identifier: MIT */
/* cli/cmd_convert.c - `latent convert`: rewrites the attention layout of a file. */
#include "options/options.h"
#include "model/layout_convert.h"

enum err_code run_convert(const struct options *o, struct err *e)
{
    static const enum attn_layout layouts[] = { LAYOUT_LEGACY, LAYOUT_IK, LAYOUT_MAINLINE };

    if (!o->given[OPTION_to_layout])
        return err_set(e, ERR_USAGE, "convert: no layout; give --layout legacy, ik or mainline");
    return layout_convert(o->args[0], o->args[1], layouts[o->to_layout],
                          o->force ? LAYOUT_OVERWRITE : 0, e);
}
