/* SPDX-License-Identifier: MIT */
/* cli/chat_input.c - see chat_input.h. */
#include "cli/chat_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int chat_read_message(struct str *text)
{
    int on_terminal = isatty(STDIN_FILENO), any = 0, more = 1;
    char *line = NULL;
    size_t cap = 0;

    while (more) {
        if (on_terminal)
            fputs(any ? ". " : "> ", stderr);
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0)
            break;
        any = 1;
        if (n && line[n - 1] == '\n')
            n--;
        if (n && line[n - 1] == '\r')
            n--;
        more = n && line[n - 1] == '\\';
        str_append(text, line, (size_t)(n - more));
        if (more)
            str_append(text, "\n", 1);
    }
    if (!any && on_terminal)
        fputs("\n", stderr);
    free(line);
    return any;
}
