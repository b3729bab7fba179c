/* SPDX-License-Identifier: MIT */
/* base/tcp.h - how every TCP connection here behaves, of either side. */
#ifndef BASE_TCP_H
#define BASE_TCP_H

/* Small frames at once, and a peer whose host or network has gone is noticed in about half a
 * minute, whether the connection is silent or bytes are under way: ETIMEDOUT. */
void tcp_tune(int fd);

#endif
