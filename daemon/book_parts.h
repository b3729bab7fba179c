/* SPDX-License-Identifier: MIT */
/* daemon/book_parts.h - what requests.c, book.c and book_store.c share. */
#ifndef DAEMON_BOOK_PARTS_H
#define DAEMON_BOOK_PARTS_H

#include "daemon/book.h"

enum {
    WARM_REQUESTS = 256,   /* ended ones that stay in memory: so many, and no more bytes than */
    WARM_BYTES = 32 << 20, /* this, but for the last of them                                  */
    QUEUE_SHARE = 3,       /* times as many as places are free may wait of one client         */
    WAKE_ALL = -1,         /* see book_wake                                                   */
};

/* A ring through its head. */
struct request_list {
    struct request head;
    int n;
    size_t bytes; /* of its requests, as they entered it */
};

struct requests {
    struct requests_options opt;
    pthread_mutex_t lock;
    void (*on_news)(void *arg);
    void *on_news_arg;
    void *by_id, *by_number; /* trees of search.h, of struct request */
    struct request_list live, ended;
    int64_t next_number, n_context;
    char maker[128]; /* of the tokens in the journal */
    int draining, journal_ok;
    struct requests_counts counts;
};

/* ---- book_store.c: requests in memory, with the lock held ------------------- */

/* A request of this spec, in no list.  Copies.  Errors: ERR_NOMEM; ERR_FORMAT. */
enum err_code request_create(struct request **out, const struct requests *b, const char *id,
                             const void *spec, size_t n_spec, struct err *e);
void request_free(struct request *r);

/* Adds a token and what it shows.  *stopped: a stop string is complete. */
enum err_code request_push(struct request *r, const struct requests *b, int32_t token, int *stopped,
                           struct err *e);

/* The end of the text: shows what was held back, unless a stop string ended it. */
void request_finish_text(struct request *r);

/* The request of this number in memory, or NULL. */
struct request *book_find(struct requests *b, int64_t number);

/* The request of this id, in memory or else in the journal; NULL: there is none. */
struct request *book_find_id(struct requests *b, const char *id);

/* Into the trees and a list.  Returns 0, or -1: no memory. */
int book_keep(struct requests *b, struct request *r, int live);
void book_drop(struct requests *b, struct request *r, int live);

/* The oldest ended ones leave memory where nobody waits on them; the journal still has them.  Never
 * the last one that was kept. */
void book_forget_cold(struct requests *b);

/* Why requests of another model end; such a request is known by it later on. */
extern const char book_other_model[];

void list_add(struct request_list *l, struct request *r);
void list_remove(struct request_list *l, struct request *r);

/* Calls those on the list who wait for one of the first n events, once; WAKE_ALL: everybody. */
void book_wake(struct requests_waiter **list, int64_t n);

/* Tells the driver. */
void book_news(struct requests *b);

/* The callback of the journal. */
void book_settled(void *book, struct journal_entry *list);

#endif
