/* SPDX-License-Identifier: MIT */
#include "cli/json_out.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

void append_printable(struct str *s, const char *text, size_t n, size_t max)
{
    size_t shown = n < max ? n : max;

    for (size_t i = 0; i < shown;) {
        const unsigned char *p = (const unsigned char *)text + i;
        size_t len = utf8_length(text + i, n - i);
        int control = p[0] < 0x20 || p[0] == 0x7f || (len == 2 && p[0] == 0xc2 && p[1] < 0xa0);
        if (len > 0 && !control) {
            str_append(s, text + i, len);
            i += len;
        } else {
            str_printf(s, "\\x%02x", p[0]);
            i++;
        }
    }
    if (shown < n)
        str_printf(s, "... (%zu bytes)", n);
}

void append_json_string(struct str *s, const char *text, size_t n)
{
    str_puts(s, "\"");
    for (size_t i = 0; i < n;) {
        size_t len = utf8_length(text + i, n - i);
        if (len == 0)
            str_puts(s, UTF8_REPLACEMENT);
        else if (text[i] == '"' || text[i] == '\\')
            str_printf(s, "\\%c", text[i]);
        else if ((unsigned char)text[i] < 0x20)
            str_printf(s, "\\u%04x", text[i]);
        else
            str_append(s, text + i, len);
        i += len ? len : 1;
    }
    str_puts(s, "\"");
}

json_t *json_text(const char *text, size_t n)
{
    json_t *j = json_stringn(text, n);

    if (!j) {
        struct str s = { 0 };
        append_printable(&s, text, n, n);
        j = json_string(s.data ? s.data : "");
        str_free(&s);
    }
    return j;
}

enum err_code json_print(json_t *root, struct err *e)
{
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;

    json_decref(root);
    if (!text)
        return err_set(e, ERR_NOMEM, "no memory to print the result as JSON");
    printf("%s\n", text);
    free(text);
    return ERR_OK;
}
