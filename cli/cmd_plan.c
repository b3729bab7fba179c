/* SPDX-License-Identifier: MIT */
/* cli/cmd_plan.c - `latent plan`: where everything would go, whether it fits, how fast it is.
 *
 * Reads headers only, so a file that was cut behind its tensor table will do.  Wrong rules do
 * not stop the report; they decide the exit status.
 */
#include "base/draft.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/output.h"
#include "placement/report.h"
#include "session/planning.h"

/* ---- Output ----------------------------------------------------------------- */

static enum err_code write_page(const struct report *r, const char *path, struct err *e)
{
    struct draft draft;
    struct str page = { 0 };

    TRY(draft_open(&draft, path, e));
    report_html(&page, r);
    if (page.failed) {
        draft_drop(&draft);
        return err_set(e, ERR_NOMEM, "%s: no memory for the page", path);
    }
    fwrite(page.data, 1, page.len, draft.file);
    str_free(&page);
    return draft_keep(&draft, e);
}

static enum err_code print(const struct planning *x, struct err *e)
{
    const struct options *o = x->o;
    const char *advice[CHANGES_MAX];
    const struct report r = planning_report(x, o->args[0], advice);
    struct str out = { 0 };
    enum err_code rc = ERR_OK;

    if (o->explain)
        rc = report_explain(&out, &r, o->explain, e);
    else if (o->json)
        report_json(&out, &r);
    else
        report_text(&out, &r);
    if (rc == ERR_OK && out.failed)
        rc = err_set(e, ERR_NOMEM, "no memory for the report");
    if (rc == ERR_OK && o->html)
        rc = write_page(&r, o->html, e);
    if (rc == ERR_OK && out.data)
        rc = output_write(out.data, out.len, e);
    str_free(&out);
    return rc;
}

static enum err_code plan(struct planning *x, struct model **model, struct err *e)
{
    const struct options *o = x->o;

    TRY(model_open(model, o->args[0], GGUF_HEADERS_ONLY, o->override_kv.v, (int)o->override_kv.n,
                   e));
    TRY(planning_make(x, *model, e));
    if (o->given[OPTION_mla])
        log_info("-mla: memory does not depend on it, and the prediction takes the cheaper form");
    TRY(print(x, e));
    return planning_judge(x, e);
}

enum err_code run_plan(const struct options *o, struct err *e)
{
    struct planning x = { .o = o, .n_context = o->ctx_size, .ranks = (int)o->ranks };
    struct model *model = NULL;
    enum err_code rc = plan(&x, &model, e);

    planning_free(&x);
    model_close(&model);
    return rc;
}
