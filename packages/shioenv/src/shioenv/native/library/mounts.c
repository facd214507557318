#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "mounts.h"

#ifdef __x86_64__

enum { FIRST_OWN = 40 };  /* number of the first mount of a run */

/* ---- the form of a line -------------------------------------------------------------------------- */

/* By form: the fields of a line, with the text before each field and before the end. */
static const struct { char before[15]; uint8_t field; } forms[N_FORMS][10] = {
    [MOUNTS] = {{"", SOURCE}, {" ", POINT}, {" ", TYPE}, {" ", OPTIONS}, {" 0 0\n", END}},
    [MOUNTINFO] = {{"", ID}, {" ", PARENT}, {" ", DEVICE}, {" ", ROOT}, {" ", POINT}, {" ", OPTIONS},
                   {" - ", TYPE}, {" ", SOURCE}, {" ", OWN}, {"\n", END}},
    [MOUNTSTATS] = {{"device ", SOURCE}, {" mounted on ", POINT}, {" with fstype ", TYPE}, {"\n", END}},
};

/* Parse a device number of the form MAJOR:MINOR. */
static uint32_t device_of(const char *text)
{
    uint32_t major = (uint32_t)number(&text);
    text += *text == ':';
    uint32_t minor = (uint32_t)number(&text);
    return (minor & 0xff) | major << 8 | (minor & ~0xffu) << 12;
}

/* Parse a line, and end its fields with NULs; a field may be empty and contains no space. Unknown parts are skipped. Return
 * whether all fields are present. */
static bool read_mount(enum form form, char **text, struct mount *mount)
{
    char *at = *text, *next = at, *ends[N_FIELDS];
    while (*next && *next != '\n') next++;
    *text = next + (*next == '\n');
    *next = 0;
    *mount = (struct mount){0};
    int n = 0;
    for (; forms[form][n].field != END; n++) {
        at = (char *)find(at, forms[form][n].before);
        if (!at) return false;
        for (const char *before = forms[form][n].before; *before; before++) at++;
        mount->field[forms[form][n].field] = at;
        while (*at && *at != ' ') at++;
        ends[n] = at;
    }
    while (n) *ends[--n] = 0;
    if (mount->field[DEVICE]) mount->device = device_of(mount->field[DEVICE]);
    if (!mount->field[OPTIONS]) mount->field[OPTIONS] = "";
    if (!mount->field[OWN]) mount->field[OWN] = mount->field[OPTIONS];
    return true;
}

/* ---- reading the kernel's list ------------------------------------------------------------------- */

/* Whether the mount point is a device node below /dev, over which a node of another file system is mounted. */
static bool is_node(const char *point)
{
    struct stat file;
    return begins(point, "/dev/") && !call(SYS_newfstatat, AT_FDCWD, (long)point, (long)&file, 0, 0)
           && S_ISCHR(file.st_mode);
}

/* Whether the mount is part of the sandbox: a cover of files or a device node. `mountstats` lacks the options. */
static bool stands_for_another(const struct mounts *mounts, const struct mount *mount)
{
    const char *source = mount->field[SOURCE], *point = mount->field[POINT], *type = mount->field[TYPE];
    bool memory = same(type, "tmpfs"), of_proc = same(source, "proc");
    if ((of_proc || same(source, "sysfs")) && memory)
        return mounts->form == MOUNTSTATS || find(mount->field[OWN], "size=0k");
    if (of_proc && same(type, "proc")) return same(point, "/proc/sys");
    if (same(type, "devpts") && same(point, "/dev/ptmx")) return true;
    return same(type, "devtmpfs") || (memory && is_node(point));
}

static bool is_root_disk(const struct mounts *mounts, const struct mount *mount)
{
    if (!same(mount->field[TYPE], "overlay")) return false;
    return mounts->form == MOUNTSTATS ? begins(mount->field[SOURCE], "/dev/") : find(mount->field[OWN], "upperdir=/layer/upper") != NULL;
}

/* Find the declared mount that corresponds to a mount, or NULL. */
static struct mount *find_declared(struct mounts *mounts, const struct mount *mount)
{
    for (int i = 0; i < mounts->n_machine; i++) {
        struct mount *known = &mounts->machine[i];
        if (!known->hidden || !same(known->field[POINT], mount->field[POINT])) continue;
        if (mount->ours ? same(known->field[POINT], "/") : same(known->field[TYPE], mount->field[TYPE])) return known;
    }
    return NULL;
}

static void read_declared(struct mounts *mounts)
{
    const char *from = text_behind(2);
    for (size_t length = 0; length < sizeof mounts->text - 1 && (mounts->text[length] = from[length]);) length++;
    for (char *at = mounts->text; *at && mounts->n_machine < (int)(sizeof mounts->machine / sizeof *mounts->machine);) {
        struct mount *mount = &mounts->machine[mounts->n_machine];
        if (!read_mount(MOUNTINFO, &at, mount)) continue;
        mount->ours = same(mount->field[POINT], "/");
        mount->hidden = *mount->field[DEVICE] == '-';  /* until it is found in the kernel's list */
        mount->field[DEVICE] += mount->hidden;
        const char *id = mount->field[ID];
        mount->number = (uint16_t)number(&id);
        mounts->n_machine++;
    }
}

/* Update a declared mount by the kernel's entry for it. */
static void meet_declared(struct mount *declared, struct mount *mount)
{
    const char *device = mount->field[DEVICE], *options = mount->field[OPTIONS];
    declared->hidden = false;
    if (device && !*declared->field[DEVICE]) declared->field[DEVICE] = device;
    if (options[0] == 'r' && options[1] == 'o') declared->field[ROOT] = NULL;  /* remounted read-only */
    mount->declared = declared;
    mount->number = declared->number;
}

void read_mounts(struct mounts *mounts, enum form form, char *text)
{
    mounts->form = form;
    read_declared(mounts);
    while (*text && mounts->n < (int)(sizeof mounts->listed / sizeof *mounts->listed)) {
        struct mount *mount = &mounts->listed[mounts->n];
        if (!read_mount(form, &text, mount)) continue;
        mount->ours = is_root_disk(mounts, mount);
        struct mount *declared = find_declared(mounts, mount);
        if (declared) meet_declared(declared, mount);
        mount->hidden = declared || stands_for_another(mounts, mount);
        if (!mount->hidden) mount->number = (uint16_t)(FIRST_OWN + mounts->n_own++);
        const char *owner = mount->hidden && !declared ? find(mount->field[OWN], ",uid=") : NULL;
        if (owner && !mounts->base) owner += 5, mounts->base = number(&owner);
        mounts->n++;
    }
}

/* ---- the machine's list -------------------------------------------------------------------------- */

/* Show options of a file system. Those of the root disk end before the layers; owners are converted to ids of the sandbox. */
static void show_options(struct output *shown, const struct mounts *mounts, const struct mount *mount, const char *options)
{
    const char *end = mount->ours ? find(options, ",lowerdir=") : NULL;
    for (const char *at = options; *at && at != end;) {
        bool owner = (begins(at, ",uid=") || begins(at, ",gid=")) && mounts->base;
        if (!owner) { show_until(shown, at, at + 1), at++; continue; }
        const char *digits = at + 5;
        uint64_t id = number(&digits);
        if (id - mounts->base < 65536) id -= mounts->base;
        if (id) show_until(shown, at, at + 5), show_number(shown, id);
        at = digits;
    }
}

static int shown_parent(const struct mounts *mounts, const struct mount *mount)
{
    for (int i = 0; i < mounts->n; i++)
        if (same(mounts->listed[i].field[ID], mount->field[PARENT])) return mounts->listed[i].number;
    return 1;
}

/* The first mount shown for a device, or NULL. */
static const struct mount *first_of(const struct mounts *mounts, uint64_t device)
{
    for (int i = 0; i < mounts->n; i++) {
        const struct mount *mount = &mounts->listed[i];
        if ((mount->declared || mount->number) && mount->device == device) return mount;
    }
    return NULL;
}

static void show_device(struct output *shown, const struct mounts *mounts, const struct mount *mount, bool declared)
{
    const char *device = mount->field[DEVICE];
    const struct mount *first = declared ? NULL : first_of(mounts, mount->device);
    if (mount->ours && facts.device) {
        uint64_t own = (uint64_t)facts.device;
        show_number(shown, own >> 8 & 0xfff), show(shown, ":");
        show_number(shown, (own & 0xff) | (own >> 12 & 0xfff00));
    } else if (first && first->declared) show(shown, first->declared->field[DEVICE]);
    else if (first && first->number && begins(device, "0:")) show(shown, "0:"), show_number(shown, first->number);
    else show(shown, device);
}

static void show_field(struct output *shown, const struct mounts *mounts, const struct mount *mount, enum field field, bool declared)
{
    const char *text = mount->field[field];
    bool closed = declared && !mount->field[ROOT];  /* declared as writable, now read-only */
    switch (field) {
    case ID: show_number(shown, mount->number); break;
    case PARENT:
        if (declared) show(shown, text);
        else show_number(shown, (uint64_t)shown_parent(mounts, mount));
        break;
    case DEVICE: show_device(shown, mounts, mount, declared); break;
    case ROOT: show(shown, text ? text : "/"); break;
    case TYPE: show(shown, mount->ours ? "ext4" : text); break;
    case OPTIONS:
        if (closed) show(shown, "ro"), text += 2;
        show_options(shown, mounts, mount, text);
        if (declared && mounts->form == MOUNTS) show(shown, mount->field[OWN] + 2);
        break;
    case OWN: show_options(shown, mounts, mount, text); break;
    default: show(shown, text);
    }
}

static void show_mount(struct output *shown, const struct mounts *mounts, const struct mount *mount, bool declared)
{
    size_t start = shown->length;
    int i = 0;
    for (; forms[mounts->form][i].field != END; i++) {
        show(shown, forms[mounts->form][i].before);
        show_field(shown, mounts, mount, forms[mounts->form][i].field, declared);
    }
    show(shown, forms[mounts->form][i].before);
    if (shown->length == SHOWN) shown->length = start;  /* only whole lines */
}

void show_mounts(struct output *shown, const struct mounts *mounts)
{
    bool whole = false;  /* the declared mounts are shown if the root disk is mounted at / */
    for (int i = 0; i < mounts->n_machine; i++)
        whole |= mounts->machine[i].ours && !mounts->machine[i].hidden;
    for (int i = 0; whole && i < mounts->n_machine; i++)
        if (!mounts->machine[i].hidden) show_mount(shown, mounts, &mounts->machine[i], true);
    for (int i = 0; i < mounts->n; i++) {
        const struct mount *mount = &mounts->listed[i];
        if (!mount->hidden || (!whole && mount->number)) show_mount(shown, mounts, mount, false);
    }
}

/* ---- the number of a device ---------------------------------------------------------------------- */

uint64_t device_in(const struct mounts *mounts, uint64_t device)
{
    const struct mount *first = first_of(mounts, device);
    if (first && first->declared && begins(first->declared->field[DEVICE], "0:")) {
        const char *minor = first->declared->field[DEVICE] + 2;
        return number(&minor);
    }
    if (first) return first->number ? first->number : device;
    for (int i = 0; i < mounts->n; i++) {  /* covers of files of /proc and /sys have the numbers of these file systems */
        const char *point = mounts->listed[i].field[POINT];
        bool of_proc = begins(point, "/proc/"), of_sys = begins(point, "/sys");
        if (mounts->listed[i].device == device && (of_proc || of_sys)) return of_proc ? PROC_DEVICE : SYS_DEVICE;
    }
    return device;
}
#endif
