/* SPDX-License-Identifier: MIT */
/* proto/sp.c - see sp.h. */
#include "proto/sp.h"

const uint8_t sp_asker[SP_GREETING] = { 0, 'S', 'P', 0, 0, 0x30, 0, 0 };
const uint8_t sp_answerer[SP_GREETING] = { 0, 'S', 'P', 0, 0, 0x31, 0, 0 };

int64_t sp_read(struct sp_frame *f, int tcp, const uint8_t *bytes, size_t n, size_t max)
{
    size_t head = tcp ? 8 : 9, n_id = 0;
    uint64_t len = 0;

    if (!tcp && n && bytes[0] != 1)
        return -1;
    if (n < head)
        return 0;
    for (size_t i = head - 8; i < head; i++)
        len = len << 8 | bytes[i];
    if (len < 4 || len > max + SP_ID_MAX)
        return -1;
    const uint8_t *content = bytes + head;
    size_t there = n - head < len ? n - head : (size_t)len;
    for (int last = 0; !last; n_id += 4) {
        if (n_id == SP_ID_MAX || n_id + 4 > len)
            return -1;
        if (n_id + 4 > there)
            return 0;
        last = content[n_id] & 0x80;
    }
    if (len - n_id > max)
        return -1;
    if (there < len)
        return 0;
    *f = (struct sp_frame){ content, content + n_id, n_id, (size_t)len - n_id };
    return (int64_t)(head + len);
}

size_t sp_write_head(uint8_t head[SP_HEAD_MAX], int tcp, size_t n_id, size_t n_body)
{
    uint64_t len = n_id + n_body;
    size_t n = 0;

    if (!tcp)
        head[n++] = 1;
    for (int shift = 56; shift >= 0; shift -= 8)
        head[n++] = (uint8_t)(len >> shift);
    return n;
}
