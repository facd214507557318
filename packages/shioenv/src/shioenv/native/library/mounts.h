/* The lists of mounts: `mounts`, `mountinfo` and `mountstats`. The kernel lists the overlay, and the mounts over files of /proc
 * and over device nodes. Programs see a list of the same form with the root disk, the mounts of every machine and those of
 * the run. */
#pragma once

#include "text.h"

enum form { MOUNTS, MOUNTINFO, MOUNTSTATS, N_FORMS };
enum field { ID, PARENT, DEVICE, ROOT, POINT, OPTIONS, TYPE, SOURCE, OWN, N_FIELDS, END = N_FIELDS };

/* A mount of the kernel or of the declaration. Fields that its form lacks are NULL or empty. */
struct mount {
    const char *field[N_FIELDS];  /* OWN: options of its file system */
    const struct mount *declared;  /* the corresponding mount of the machine */
    uint32_t device;  /* device number */
    uint16_t number;  /* shown as id */
    bool ours;    /* the root disk */
    bool hidden;  /* not shown: replaced by a declared mount, or part of the sandbox */
};

struct mounts {
    enum form form;
    char text[4096];              /* of the declared mounts */
    struct mount listed[1024], machine[16];
    int n, n_machine, n_own;
    uint64_t base;                /* the host's uid of the machine's root */
};

/* Parse the kernel's list in place. */
void read_mounts(struct mounts *mounts, enum form form, char *text);
void show_mounts(struct output *shown, const struct mounts *mounts);

/* The device number that the list shows for a mounted device. */
uint64_t device_in(const struct mounts *mounts, uint64_t device);
