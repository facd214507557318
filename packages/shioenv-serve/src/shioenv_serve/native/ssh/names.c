/* libnss_front.so.2: every name of a user exists. Runs on the C library of a system, and is linked against none.
 *
 * With "passwd: files front", it resolves the names that the passwd file of sshd's small root lacks. */
#include <errno.h>
#include <nss.h>
#include <pwd.h>
#include <string.h>

#include "calls.h"

enum { LONGEST = 255 };

static enum nss_status fill(const char *name, struct passwd *user, char *space, size_t size, int *error)
{
    size_t length = strlen(name);
    if (!length || length > LONGEST) return NSS_STATUS_NOTFOUND;
    if (size < length + 1 + sizeof "*" + sizeof "" + sizeof "/" + sizeof SHELL) {
        *error = ERANGE;
        return NSS_STATUS_TRYAGAIN;
    }
    user->pw_name = memcpy(space, name, length + 1);
    user->pw_passwd = memcpy(space += length + 1, "*", sizeof "*");
    user->pw_gecos = memcpy(space += sizeof "*", "", sizeof "");
    user->pw_dir = memcpy(space += sizeof "", "/", sizeof "/");
    user->pw_shell = memcpy(space + sizeof "/", SHELL, sizeof SHELL);
    user->pw_uid = EVERYBODY;
    user->pw_gid = EVERYBODY;
    return NSS_STATUS_SUCCESS;
}

enum nss_status _nss_front_getpwnam_r(const char *name, struct passwd *user, char *space, size_t size, int *error)
{
    return fill(name, user, space, size, error);
}

enum nss_status _nss_front_getpwuid_r(uid_t uid, struct passwd *user, char *space, size_t size, int *error)
{
    return uid == EVERYBODY ? fill("user", user, space, size, error) : NSS_STATUS_NOTFOUND;
}
