/* Copies of a small layer's upper directory in memory, from which it is created anew. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "scan.h"

struct layer_copy {
    struct buffer bytes;      /* a record for each name, those in a directory before the directory */
    struct buffer read_times; /* their access times, which do not count in comparisons */
    struct stat root;
    bool numbers_kept;
    bool gives_numbers;       /* whether it is created in a new file system, with the same inode numbers */
};

/* Copy the directory; false if it is too large, or has attributes that cannot be copied. */
bool copy_layer(int upper, struct layer_copy *copy);

/* Whether the directory is as in the copy. */
bool is_layer_of(int upper, const struct layer_copy *copy);

/* Create the content of the directory, which is empty and of no overlay, with the help of an empty directory of the same file
 * system. Attributes of the directory itself are left. */
void fill_layer(int upper, int stage, const struct layer_copy *copy);
void forget_layer(struct layer_copy *copy);
