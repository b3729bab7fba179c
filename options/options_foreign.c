/* SPDX-License-Identifier: MIT */
/* options/options_foreign.c - options of the peers, and of later versions. */
#include "options/options_table.h"

#include <string.h>

#include "base/log.h"

static const struct foreign_option foreign[] = {
#define X(VALUE, names, accepted, what) { FOREIGN_##VALUE, names, accepted, what, 0 },
#include "options/options_later.def"
#undef X
#define X(VALUE, names, reply)        { FOREIGN_##VALUE, names, NULL, reply, 0 },
#define REFUSED(VALUE, names, advice) { FOREIGN_##VALUE, names, NULL, advice, 1 },
#include "options/options_peer.def"
#undef X
#undef REFUSED
};

const struct foreign_option *foreign_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (word_index(foreign[i].names, ' ', name, len) >= 0)
            return &foreign[i];
    return NULL;
}

int foreign_takes(const struct foreign_option *f, const char *next)
{
    switch (f->value) {
    case FOREIGN_NONE:
        return 0;
    case FOREIGN_ONE:
        return 1;
    case FOREIGN_SWITCH:
        return word_index("on|off|auto|0|1", '|', next, strlen(next)) >= 0;
    case FOREIGN_MAYBE:
        return next[0] != '-';
    }
    return 0;
}

enum err_code foreign_answer(const struct foreign_option *f, const char *name, const char *value,
                             struct err *e)
{
    if (f->refused)
        return err_set(e, ERR_USAGE, "%s: no option here; %s", name, f->text);
    if (!f->accepted) {
        log_warn("%s: has no effect; %s", name, f->text);
        return ERR_OK;
    }
    if (value && word_index(f->accepted, '|', value, strlen(value)) >= 0)
        return ERR_OK;
    if (*f->accepted)
        return err_set(e, ERR_USAGE, "%s %.40s: %s is not in this version yet; give %s", name,
                       value ? value : "", f->text, f->accepted);
    return err_set(e, ERR_USAGE, "%s: %s is not in this version yet; leave it out", name, f->text);
}
