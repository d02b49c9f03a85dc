/* Kills the process at, or fails, one operation on the files below a folder; loaded before the C library.

FAULT_ROOT   the folder, an absolute path; nothing happens without it
FAULT_AT     the number of the operation, from 1
FAULT_KIND   kill: before it; tear: half-way through a write; a number: it fails with this errno
FAULT_ON     1: so do all later ones (a disk that stays full), but those that free space where it is ENOSPC or EDQUOT
FAULT_LOG    a file outside that gets a line for each operation */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int count;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int below(const char *root, int folder, const char *path) {
    char whole[PATH_MAX * 2], link[64];
    if (path[0] == '/') {
        snprintf(whole, sizeof whole, "%s", path);
    } else {
        char base[PATH_MAX];
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, base, sizeof base - 1);
            if (length < 0) return 0;
            base[length] = 0;
        }
        snprintf(whole, sizeof whole, "%s%s%s", base, path[0] ? "/" : "", path);
    }
    size_t length = strlen(root);
    return strncmp(whole, root, length) == 0 && (whole[length] == '/' || whole[length] == 0);
}

/* 0: go on; else the errno to fail with. -1: half a write, then die. */
static int fault(const char *what, int folder, const char *path, int frees) {
    const char *root = getenv("FAULT_ROOT"), *kind = getenv("FAULT_KIND"), *log = getenv("FAULT_LOG");
    if (!root || !below(root, folder, path)) return 0;
    int number = atomic_fetch_add(&count, 1) + 1, at = getenv("FAULT_AT") ? atoi(getenv("FAULT_AT")) : 0;
    if (log) {
        int file = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
        dprintf(file, "%s %s\n", what, path);
        close(file);
    }
    if (!kind || !(number == at || (at && number > at && getenv("FAULT_ON")))) return 0;
    if (!strcmp(kind, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(kind, "tear")) return strcmp(what, "write") ? (kill(getpid(), SIGKILL), 0) : -1;
    int error = atoi(kind);
    return frees && (error == ENOSPC || error == EDQUOT) ? 0 : error;
}

#define FAIL(...)                      \
    do {                               \
        int error = fault(__VA_ARGS__); \
        if (error > 0) {               \
            errno = error;             \
            return -1;                 \
        }                              \
    } while (0)

#define WRITES (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR)
#define OPEN(name)                                                       \
    int name(const char *path, int flags, ...) {                         \
        va_list rest;                                                    \
        va_start(rest, flags);                                           \
        mode_t mode = va_arg(rest, mode_t);                              \
        va_end(rest);                                                    \
        if (flags & WRITES) FAIL("open", AT_FDCWD, path, 0);             \
        return REAL(name)(path, flags, mode);                            \
    }
#define OPENAT(name)                                                     \
    int name(int folder, const char *path, int flags, ...) {             \
        va_list rest;                                                    \
        va_start(rest, flags);                                           \
        mode_t mode = va_arg(rest, mode_t);                              \
        va_end(rest);                                                    \
        if (flags & WRITES) FAIL("open", folder, path, 0);               \
        return REAL(name)(folder, path, flags, mode);                    \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    int error = file > 2 ? fault("write", file, "", 0) : 0;
    if (error > 0) {
        errno = error;
        return -1;
    }
    if (error < 0) {
        REAL(write)(file, data, size / 2);
        kill(getpid(), SIGKILL);
    }
    return REAL(write)(file, data, size);
}
int fsync(int file) { FAIL("fsync", file, "", 0); return REAL(fsync)(file); }
int ftruncate64(int file, off64_t size) { FAIL("truncate", file, "", 1); return REAL(ftruncate64)(file, size); }
int mkdir(const char *path, mode_t mode) { FAIL("mkdir", AT_FDCWD, path, 0); return REAL(mkdir)(path, mode); }
int rmdir(const char *path) { FAIL("rmdir", AT_FDCWD, path, 1); return REAL(rmdir)(path); }
int unlink(const char *path) { FAIL("unlink", AT_FDCWD, path, 1); return REAL(unlink)(path); }
int unlinkat(int folder, const char *path, int flags) {
    FAIL("unlink", folder, path, 1);
    return REAL(unlinkat)(folder, path, flags);
}
int rename(const char *from, const char *to) {
    FAIL("rename", AT_FDCWD, to, 0);
    return REAL(rename)(from, to);
}
int renameat(int folder, const char *from, int there, const char *to) {
    FAIL("rename", there, to, 0);
    return REAL(renameat)(folder, from, there, to);
}
