/* SPDX-License-Identifier: MIT */
/* cli/bench_devices.h - `latent bench --devices`: measures this machine, keeps the profile. */
#ifndef CLI_BENCH_DEVICES_H
#define CLI_BENCH_DEVICES_H

#include "options/options.h"

enum err_code bench_devices(const struct options *o, struct err *e);

#endif
