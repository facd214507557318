/* pam_front.so: asks the server whether a password is accepted. Runs on a system's libraries, and is linked against none.
 *
 * An answer takes as long as one of pam_unix: one yescrypt hash, and after a refusal libpam's delay of about two seconds. The time
 * does not depend on the name. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "calls.h"

/* Declarations of libpam and libcrypt, whose headers may be missing. */
enum { PAM_SUCCESS = 0, PAM_AUTH_ERR = 7, PAM_USER = 2, PAM_AUTHTOK = 6 };
typedef struct pam_handle pam_handle_t;
int pam_get_item(const pam_handle_t *, int, const void **);
int pam_get_authtok(pam_handle_t *, int, const char **, const char *);
int pam_fail_delay(pam_handle_t *, unsigned int);
int pam_putenv(pam_handle_t *, const char *);
char *crypt_r(const char *, const char *, void *);

enum { REFUSAL_MICROSECONDS = 2000000, PATIENCE_SECONDS = 5, MOST = 8192, SPACE = 65536 };
static const char SETTING[] = "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$";  /* with the cost of Debian's password hashes */

static size_t put(char *text, size_t used, const char *field)
{
    size_t length = strlen(field);
    if (length > MOST / 2 - 64) length = MOST / 2 - 64;
    memcpy(text + used, field, length);
    text[used + length] = 0;
    return used + length + 1;
}

static int passes(const char *user, const char *password)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = GATE};
    struct timeval patience = {PATIENCE_SECONDS, 0};
    const char *connection = getenv(CONNECTION);
    char text[MOST], answer = 0;
    size_t used = put(text, 0, connection ? connection : "");
    if (strlen(user) > 256) return 0;
    used = put(text, used, user);
    used = put(text, used, password);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) || send(fd, text, used, MSG_NOSIGNAL) < 0 ||
        recv(fd, &answer, 1, 0) != 1) answer = 0;
    close(fd);
    return answer == 'A';
}

int pam_sm_authenticate(pam_handle_t *handle, int flags, int count, const char **words)
{
    const char *password = NULL;
    const void *user = NULL;
    (void)flags, (void)count, (void)words;
    pam_fail_delay(handle, REFUSAL_MICROSECONDS);
    if (pam_get_authtok(handle, PAM_AUTHTOK, &password, NULL) != PAM_SUCCESS || !password) return PAM_AUTH_ERR;
    void *space = calloc(1, SPACE);
    if (space) crypt_r(password, SETTING, space);
    free(space);
    if (pam_get_item(handle, PAM_USER, &user) != PAM_SUCCESS || !user) return PAM_AUTH_ERR;
    return passes(user, password) ? PAM_SUCCESS : PAM_AUTH_ERR;
}

int pam_sm_setcred(pam_handle_t *handle, int flags, int count, const char **words)
{
    (void)handle, (void)flags, (void)count, (void)words;
    return PAM_SUCCESS;
}

int pam_sm_acct_mgmt(pam_handle_t *handle, int flags, int count, const char **words)
{
    return pam_sm_setcred(handle, flags, count, words);
}

/* Pass the name of the connection to the login shell. */
int pam_sm_open_session(pam_handle_t *handle, int flags, int count, const char **words)
{
    static const char name[] = CONNECTION "=";
    const char *connection = getenv(CONNECTION);
    char text[128];
    (void)flags, (void)count, (void)words;
    if (!connection || strlen(connection) > sizeof text - sizeof name) return PAM_SUCCESS;
    memcpy(text, name, sizeof name);
    strcat(text, connection);
    pam_putenv(handle, text);
    return PAM_SUCCESS;
}

int pam_sm_close_session(pam_handle_t *handle, int flags, int count, const char **words)
{
    return pam_sm_setcred(handle, flags, count, words);
}
