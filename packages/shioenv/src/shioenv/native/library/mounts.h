/* What a machine has mounted: `mounts`, `mountinfo` and `mountstats`. The kernel lists an overlay, all that covers /proc and
 * the device nodes. Shown is a list of the same form, with the root disk, the mounts that every machine has and those of the
 * run. */
#pragma once

#include "text.h"

enum form { MOUNTS, MOUNTINFO, MOUNTSTATS, N_FORMS };
enum field { ID, PARENT, DEVICE, ROOT, POINT, OPTIONS, TYPE, SOURCE, OWN, N_FIELDS, END = N_FIELDS };

/* A mount, as the kernel has it or as it was declared. What its form does not say is NULL or empty. */
struct mount {
    const char *field[N_FIELDS];  /* OWN: options of its file system */
    const struct mount *declared;  /* the machine's mount that it is */
    uint32_t device;  /* its number */
    uint16_t number;  /* that is shown for the id */
    bool ours;    /* the root disk */
    bool hidden;  /* what stands for something else, or what a declared one is shown for */
};

struct mounts {
    enum form form;
    char text[4096];              /* of those that are declared */
    struct mount listed[1024], machine[16];
    int n, n_machine, n_own;
    uint64_t base;                /* the host's number of the machine's root */
};

/* Reads the kernel's list, which is cut into pieces. */
void read_mounts(struct mounts *mounts, enum form form, char *text);
void show_mounts(struct output *shown, const struct mounts *mounts);

/* The number of the device that something is mounted from, as the list shows it. */
uint64_t device_in(const struct mounts *mounts, uint64_t device);
