/* SPDX-License-Identifier: MIT */
/* cli/options_table.h - where it was; see options/options_table.h. */
#include "options/options_table.h"
