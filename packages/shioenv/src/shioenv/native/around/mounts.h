/* The mounts: the parts of every layer, and the layers, each a pristine system. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

extern int lower_root, upper_root, merged_root;  /* roots of the inputs' layer */

struct disk_state { uint64_t files, blocks, mode, owner; struct timespec changed, modified; };
extern struct disk_state pristine_disk;
struct disk_state disk_state(void);
void settle_root(void);

void own_mounts(void);
void make_device_nodes(uid_t uid, gid_t gid);
struct shared_parts { int tree, processes; };  /* -1: none */
struct shared_parts parts_of(int kept);
const char *make_kept_mounts(const char *wanted, const struct timespec *instant, const char *plain, struct shared_parts parts);
void enter_kept_mounts(int kept, const char *name);
void make_outer_mounts(void);
int make_layer(bool with_library);
void renew_layer(void);

/* Freeze the layer: later scans find only changes made from now on. Return a copy of its mounts, which all processes in the
 * layer must enter, or -1 if the layer was not frozen. */
int freeze_layer(void);
bool has_frozen_layers(void);
unsigned frozen_layers(void);

/* Freeze the layer, which no process may be in; return the number of frozen layers, 0 if it was not frozen. */
unsigned freeze_unused_layer(void);

/* Whether so many layers are frozen, and the content of the layer over them is as in the copy (NULL: none). */
struct layer_copy;
bool is_layer(unsigned layers, const struct layer_copy *copy);

/* Return to so many frozen layers, and to the content of the copy. No process may be in the layer. */
void roll_back_layer(unsigned to, const struct layer_copy *copy);

/* Drop the layer's cached names, except those of files in use, so that they are looked up again. */
void forget_names(void);
