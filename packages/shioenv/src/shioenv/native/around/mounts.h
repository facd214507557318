/* The mounts: what every layer is made of, and the layers, each a pristine system. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

extern int lower_root, upper_root, merged_root;  /* of the inputs' layer */

struct disk_state { uint64_t files, blocks, mode, owner; struct timespec changed, modified; };
extern struct disk_state pristine_disk;
struct disk_state disk_state(void);
void settle_root(void);

void own_mounts(void);
void make_device_nodes(uid_t uid, gid_t gid);
int tree_of(int kept);
const char *make_kept_mounts(const char *wanted, const struct timespec *instant, const char *plain, int tree);
void enter_kept_mounts(int kept, const char *name);
void make_outer_mounts(void);
int make_layer(bool with_library);
void renew_layer(void);

/* Has the layer begin as what it is now: what changes from here on is found without looking at what changed before. Returns
 * a copy of its mounts, which whoever is in the layer has to enter; -1: it stays as it was. */
int freeze_layer(void);
bool has_frozen_layers(void);

/* Has the layer's names looked up anew, but for those of files that are in use. */
void forget_names(void);
