/* SPDX-License-Identifier: MIT */
/* model/tokenizer_tables.h - what tokenizer_open.c builds and tokenizer.c reads. */
#ifndef MODEL_TOKENIZER_TABLES_H
#define MODEL_TOKENIZER_TABLES_H

#include "model/bpe.h"
#include "model/presplit.h"
#include "model/special.h"
#include "model/vocab.h"

/* As in tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1,  /* text in the byte alphabet; the only ones that text is encoded to */
    TOKEN_UNKNOWN = 2, /* shown and found like a control token                             */
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,   /* text as it is, cut out before anything is split */
    TOKEN_UNUSED = 5, /* nothing                                         */
    TOKEN_BYTE = 6,   /* "<0x0A>"                                        */
};

struct tokenizer {
    struct vocab vocab; /* tokens, then the other symbols of the merges */
    int32_t n_tokens;
    uint8_t *type;  /* [n_tokens] enum token_type             */
    uint8_t *plain; /* [n_tokens] 1: normal                   */
    uint8_t *ends;  /* [n_tokens] 1: generation stops with it */
    struct bpe bpe;
    struct specials specials;
    struct presplitter *pre;
    char *pre_name;
    int32_t bos, eos; /* -1: none */
    int adds_bos;
    int whole_pieces; /* a piece that is a token is not merged */
};

/* The byte that a token of TOKEN_BYTE stands for, or -1. */
int token_byte(const char *text, size_t n);

#endif
