/* A copy of the system's directory tree in memory, so that programs see the same tree on every host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Copy the tree below `from` into the directory `to`, with types, modes, owners, links and times; access times become
 * `instant`. Without `whole`, regular files have no data: overlayfs attributes refer to the data layer `from`. If `wanted` is
 * not NULL, only top-level entries that it accepts are copied. Return the path of a file whose data was left in `from`, or "". */
const char *fill_tree(const char *from, const char *to, const struct timespec *instant, bool whole,
               bool (*wanted)(const char *name));

/* Checksum of the last copied tree; it changes with any name, type, mode, owner, size or time. */
extern uint64_t filled_sum;

/* Create an empty file in `to` for each top-level entry of `from`. */
void fill_names(const char *from, const char *to);
