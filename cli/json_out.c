/* SPDX-License-Identifier: MIT */
#include "cli/json_out.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

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
        str_printable(&s, text, n, n);
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
