/* SPDX-License-Identifier: MIT */
/* proto/envelope.c - see envelope.h. */
#include "proto/envelope.h"

#include <inttypes.h>
#include <stdlib.h>

static enum err_code check_version(const uint8_t *bytes, size_t n, struct err *e)
{
    uint64_t version;
    int found = scan_find_varint(bytes, n, 1, &version);

    if (found < 0)
        return err_set(e, ERR_FORMAT, "message: not an Envelope of latentd.proto");
    if (!found)
        return err_set(e, ERR_FORMAT, "message: version is missing; this is protocol version %d",
                       PROTO_VERSION);
    if (version != PROTO_VERSION)
        return err_set(e, ERR_UNSUPPORTED,
                       "protocol version %" PRIu64 ": this side speaks version %d; use a client "
                       "and a daemon of the same version",
                       version, PROTO_VERSION);
    return ERR_OK;
}

enum err_code envelope_decode(Latentd__Envelope **out, const void *bytes, size_t n, size_t max,
                              struct scan_path *path, struct err *e)
{
    if (path)
        path->text[0] = '\0';
    if (n > max)
        return err_set(e, ERR_FORMAT, "message: has %zu bytes; at most %zu", n, max);
    TRY(check_version(bytes, n, e));
    TRY(scan_message(&latentd__envelope__descriptor, bytes, n, path, e));
    Latentd__Envelope *m = latentd__envelope__unpack(NULL, n, bytes);
    if (!m)
        return err_set(e, ERR_FORMAT, "message: %zu bytes that protobuf-c cannot unpack", n);
    *out = m;
    return ERR_OK;
}

void envelope_free(Latentd__Envelope **m)
{
    if (*m)
        latentd__envelope__free_unpacked(*m, NULL);
    *m = NULL;
}

enum err_code envelope_encode(uint8_t **out, size_t *n, const Latentd__Envelope *m, size_t max,
                              struct err *e)
{
    size_t size = latentd__envelope__get_packed_size(m);

    if (size > max)
        return err_set(e, ERR_FULL, "message: would have %zu bytes; at most %zu", size, max);
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes)
        return err_set(e, ERR_NOMEM, "message: no memory for %zu bytes", size);
    latentd__envelope__pack(m, bytes);
    enum err_code rc = scan_message(&latentd__envelope__descriptor, bytes, size, NULL, e);
    if (rc != ERR_OK) {
        free(bytes);
        return rc;
    }
    *out = bytes;
    *n = size;
    return ERR_OK;
}

const char *envelope_method_name(Latentd__Method method)
{
    static const char *const names[] = {
        [LATENTD__METHOD__METHOD_NONE] = "?",
        [LATENTD__METHOD__METHOD_SUBMIT] = "submit",
        [LATENTD__METHOD__METHOD_NEXT] = "next",
        [LATENTD__METHOD__METHOD_CANCEL] = "cancel",
        [LATENTD__METHOD__METHOD_LIST] = "list",
        [LATENTD__METHOD__METHOD_TOKENIZE] = "tokenize",
        [LATENTD__METHOD__METHOD_DETOKENIZE] = "detokenize",
        [LATENTD__METHOD__METHOD_PLAN] = "plan",
        [LATENTD__METHOD__METHOD_STATUS] = "status",
        [LATENTD__METHOD__METHOD_HEALTH] = "health",
        [LATENTD__METHOD__METHOD_METRICS] = "metrics",
        [LATENTD__METHOD__METHOD_DRAIN] = "drain",
    };

    if ((unsigned)method >= sizeof names / sizeof *names)
        return "?";
    return names[method];
}
