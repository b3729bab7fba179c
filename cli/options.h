/* SPDX-License-Identifier: MIT */
/* cli/options.h - the option table, where it was; see options/options.h. */
#include "options/options.h"
