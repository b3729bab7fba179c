/* SPDX-License-Identifier: MIT */
/* tests/fuzz/devices_fuzz.c - any text as a description of machines. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "placement/devices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct inventory m;
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (*text != '@' && inventory_read(&m, text, NULL) == ERR_OK) {
        if (m.n < 1 || inventory_ranks(&m) < m.n)
            abort();
        for (int ranks = m.n; ranks < m.n + 3; ranks++)
            if (inventory_set_ranks(&m, ranks, NULL) == ERR_OK && inventory_ranks(&m) != ranks)
                abort();
        inventory_free(&m);
    }
    free(text);
    return 0;
}
