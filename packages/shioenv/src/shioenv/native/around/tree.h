/* The system's tree copied to memory, so that what programs see of it is the same on every host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Fills the directory `to` with the tree below `from`: kinds, modes, owners, links and times as they are, but that
 * everything was last read at `instant`. Without `whole` a regular file holds no data: attributes of overlayfs lead to it
 * in a data layer that is `from`. Only the entries of the top that `wanted` accepts, where it is not NULL. Returns the path
 * of a file whose data was left below, or "". */
const char *fill_tree(const char *from, const char *to, const struct timespec *instant, bool whole,
               bool (*wanted)(const char *name));

/* Of what the last tree was filled with: another one where a name, kind, mode, owner, size or time is another. */
extern uint64_t filled_sum;

/* Fills `to` with an empty file for each entry of the top of `from`. */
void fill_names(const char *from, const char *to);
