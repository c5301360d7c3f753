/* faultfs: a preloaded library that records, and makes fail, what a process asks of the file system below one directory.
 *
 * Built by tests/support/faultfs.rs: cc -shared -fPIC -O2 -o faultfs.so faultfs.c -ldl -lpthread. Linux and glibc only: it
 * interposes the C library's functions, so a system call that a program makes by itself is not seen (the crate rustix,
 * with which temporary files are opened, does that; what is written to them is seen).
 *
 * Environment:
 *   FAULTFS_ROOT     the directory, absolute and without symbolic links; nothing outside it is touched
 *   FAULTFS_TRACE    a file that gets a record of every change and sync, or unset
 *   FAULTFS_CONTROL  a file of rules, or unset; it is read again whenever it has changed (replace it by a rename)
 *   FAULTFS_LOG      a file that gets a line for every fault: "RULE KIND ERRNO PATH"; required with FAULTFS_CONTROL
 *   FAULTFS_UNDO     1: remember what is not synced, so that `drop` can take it back
 *
 * Rules, one a line; empty lines and lines that begin with # do not count. Counters begin anew when the file changes.
 *   fail KINDS GLOB FIRST TIMES ERRNO   the FIRST-th call (from 1) of one of KINDS on a path that GLOB matches fails,
 *                                       and those after it, TIMES in all (0: until the rules change); calls that
 *                                       match are counted whether or not they fail
 *   drop KINDS GLOB FIRST TIMES ERRNO   the same for fsync and fdatasync; the file loses what was not synced, as Linux
 *                                       gives up pages that it could not write
 *   kill KINDS GLOB FIRST               SIGKILL ends the process before it does the FIRST-th call
 *   quota DIRECTORY BYTES               the files below may grow by BYTES in all from now on, then ENOSPC; what is
 *                                       removed or cut off is given back
 *   count KINDS GLOB                    writes the number of matching calls to the log when the rules change, or the
 *                                       process ends: "RULE count NUMBER"
 * KINDS is a comma list of the names in `kind_names`, or `any`. GLOB and DIRECTORY are relative to the root; `*` in a
 * GLOB matches any characters, slashes too. ERRNO is a name such as EIO or a number.
 *
 * The trace is little-endian records: u32 magic, u8 operation, i32 errno, u64 inode, u64 offset, u64 length of the data,
 * u16 length of a first path, u16 of a second; then the paths (relative to the root) and the data.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x31544646u /* "FFT1" */
#define RULES 64

enum operation {
    CREATE = 'C', /* a file appeared at the first path */
    WRITE = 'W',
    TRUNCATE = 'T', /* to the length in `offset` */
    RENAME = 'R', /* from the first path to the second */
    LINK = 'L', /* the first path has the second one as another name */
    UNLINK = 'U',
    MKDIR = 'M',
    RMDIR = 'D',
    SYNC = 'S', /* of a file */
    SYNC_DIRECTORY = 's',
    SYNC_FAILED = 'F', /* what was not synced is lost */
};

enum kind { OPEN, CREATES, READ, WRITES, RESIZE, RENAMES, LINKS, UNLINKS, MKDIRS, FSYNC, STAT, LIST, KINDS };
static const char *const kind_names[KINDS] = {"open",  "create", "read",  "write", "truncate", "rename",
                                              "link",  "unlink", "mkdir", "fsync", "stat",     "list"};

static char root[PATH_MAX];
static size_t root_length;
static char control[PATH_MAX];
static int trace_fd = -1, log_fd = -1;
static bool undo_enabled;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static __thread int inside; /* our own calls pass through */

/* The next definition of a function: the C library's. */
#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        dprintf(2, "faultfs: the C library has no %s\n", name);
        abort();
    }
    return found;
}
#define CALL(name, ...) ({ static __typeof__(&name) f; if (!f) f = REAL(name); f(__VA_ARGS__); })

/* ---- rules ---- */

struct rule {
    enum { FAIL, DROP, KILL, QUOTA, COUNT } type;
    unsigned kinds;
    char glob[PATH_MAX];
    unsigned long first, times, seen;
    int error;
    long long left; /* of a quota */
};
static struct rule rules[RULES];
static int rule_count;
static struct timespec control_time;
static ino_t control_inode;

static const struct { const char *name; int value; } errors[] = {
    {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EMFILE", EMFILE}, {"ENFILE", ENFILE}, {"EACCES", EACCES},
    {"EROFS", EROFS}, {"ENOMEM", ENOMEM}, {"EINTR", EINTR}, {"EPERM", EPERM}, {"EXDEV", EXDEV}, {"ENOENT", ENOENT},
    {"ESTALE", ESTALE},
};

static int error_of(const char *name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (!strcmp(errors[i].name, name)) return errors[i].value;
    return atoi(name);
}

static unsigned kinds_of(char *list) {
    unsigned kinds = 0;
    char *save = NULL;
    for (char *name = strtok_r(list, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
        bool known = !strcmp(name, "any");
        if (known) kinds = ~0u;
        for (int kind = 0; kind < KINDS; kind++)
            if (!strcmp(kind_names[kind], name)) kinds |= 1u << kind, known = true;
        if (!known) {
            dprintf(2, "faultfs: no kind %s\n", name);
            abort();
        }
    }
    return kinds;
}

static void log_counts(void) {
    for (int i = 0; i < rule_count; i++)
        if (rules[i].type == COUNT && log_fd >= 0) dprintf(log_fd, "%d count %lu\n", i, rules[i].seen);
}

static void read_rules(void) {
    struct stat status;
    if (!*control || CALL(stat, control, &status)) return;
    if (status.st_ino == control_inode && status.st_mtim.tv_sec == control_time.tv_sec &&
        status.st_mtim.tv_nsec == control_time.tv_nsec)
        return;
    int fd = CALL(open, control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    static char text[65536];
    ssize_t length = CALL(read, fd, text, sizeof text - 1);
    CALL(close, fd);
    if (length < 0) return;
    text[length] = 0;
    log_counts();
    control_inode = status.st_ino;
    control_time = status.st_mtim;
    rule_count = 0;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char type[16], kinds[256], error[32];
        struct rule *rule = &rules[rule_count];
        memset(rule, 0, sizeof *rule);
        if (*line == '#' || sscanf(line, " %15s", type) != 1) continue;
        bool valid = false;
        if ((!strcmp(type, "fail") || !strcmp(type, "drop")) &&
            sscanf(line, "%*s %255s %4095s %lu %lu %31s", kinds, rule->glob, &rule->first, &rule->times, error) == 5) {
            rule->type = *type == 'f' ? FAIL : DROP;
            rule->kinds = kinds_of(kinds);
            rule->error = error_of(error);
            valid = rule->error > 0 && rule->first > 0;
        } else if (!strcmp(type, "kill") && sscanf(line, "%*s %255s %4095s %lu", kinds, rule->glob, &rule->first) == 3) {
            rule->type = KILL;
            rule->kinds = kinds_of(kinds);
            valid = rule->first > 0;
        } else if (!strcmp(type, "quota") && sscanf(line, "%*s %4095s %lld", rule->glob, &rule->left) == 2) {
            rule->type = QUOTA;
            valid = true;
        } else if (!strcmp(type, "count") && sscanf(line, "%*s %255s %4095s", kinds, rule->glob) == 2) {
            rule->type = COUNT;
            rule->kinds = kinds_of(kinds);
            valid = true;
        }
        if (!valid || rule_count == RULES - 1) {
            dprintf(2, "faultfs: not a rule, or too many: %s\n", line);
            abort();
        }
        rule_count++;
    }
}

/* ---- paths ---- */

/* The path relative to the root if it is below it (the root itself is "."), else NULL. */
static const char *relative(const char *path) {
    if (!root_length || strncmp(path, root, root_length)) return NULL;
    if (!path[root_length]) return ".";
    return path[root_length] == '/' ? path + root_length + 1 : NULL;
}

/* Removes `.`, `..` and double slashes; symbolic links below the root are not followed. */
static void normalise(char *path) {
    char *out = path, *in = path;
    while (*in) {
        while (*in == '/') in++;
        char *end = in;
        while (*end && *end != '/') end++;
        size_t length = end - in;
        if (length == 0 || (length == 1 && *in == '.')) {
            /* nothing */
        } else if (length == 2 && in[0] == '.' && in[1] == '.') {
            while (out > path && *--out != '/') {}
        } else {
            *out++ = '/';
            memmove(out, in, length);
            out += length;
        }
        in = end;
    }
    *out = 0;
}

/* The path that a call names, relative to the root, in `buffer`; NULL if it is not below the root. */
static const char *below(int directory, const char *path, char buffer[PATH_MAX]) {
    if (inside || !root_length || !path) return NULL;
    int saved = errno;
    char whole[2 * PATH_MAX];
    whole[0] = 0;
    if (*path != '/') {
        char link[64];
        if (directory == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, whole, PATH_MAX - 1);
        errno = saved;
        if (length < 0) return NULL;
        whole[length] = 0;
        strcat(whole, "/");
    }
    if (strlen(path) >= PATH_MAX) return NULL;
    strcat(whole, path);
    normalise(whole);
    const char *found = relative(whole);
    if (found) {
        snprintf(buffer, PATH_MAX, "%s", found);
        return buffer;
    }
    return NULL;
}

/* The same for an open file. */
static const char *below_fd(int fd, char buffer[PATH_MAX]) {
    if (inside || !root_length) return NULL;
    int saved = errno;
    char link[64], target[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    errno = saved;
    if (length < 0) return NULL;
    target[length] = 0;
    const char *found = relative(target);
    if (!found) return NULL;
    snprintf(buffer, PATH_MAX, "%s", found);
    return buffer;
}

static const char *absolute(const char *path, char buffer[2 * PATH_MAX]) {
    snprintf(buffer, 2 * PATH_MAX, "%s/%s", root, path);
    return buffer;
}

/* A descriptor of the same file that can be read or written: the same one where it can. Closing another would end the
 * locks that the process has on the file, SQLite's among them. */
static int with_access(int fd, int access) {
    int mode = CALL(fcntl, fd, F_GETFL) & O_ACCMODE;
    if (mode == O_RDWR || mode == access) return fd;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return CALL(open, link, access | O_CLOEXEC);
}

static void done_with(int another, int fd) {
    if (another >= 0 && another != fd) CALL(close, another);
}

/* ---- what is not synced, for `drop` ---- */

struct undo {
    struct undo *next;
    ino_t inode;
    off_t offset, size_before;
    size_t length;
    char old[];
};
static struct undo *undos;

/* Remembers what a change of `length` bytes at `offset` overwrites; the newest comes first. */
static void remember(int fd, off_t offset, size_t length) {
    struct stat status;
    if (!undo_enabled || CALL(fstat, fd, &status) || !S_ISREG(status.st_mode)) return;
    size_t old = offset < status.st_size ? (size_t)(status.st_size - offset) : 0;
    if (old > length) old = length;
    struct undo *undo = malloc(sizeof *undo + old);
    if (!undo) return;
    int reading = old ? with_access(fd, O_RDONLY) : -1;
    ssize_t got = reading >= 0 ? CALL(pread, reading, undo->old, old, offset) : 0;
    done_with(reading, fd);
    undo->next = undos;
    undo->inode = status.st_ino;
    undo->offset = offset;
    undo->size_before = status.st_size;
    undo->length = got > 0 ? (size_t)got : 0;
    undos = undo;
}

/* Forgets what has been synced, or takes back what is lost. */
static void settle(int fd, bool lost) {
    struct stat status;
    if (!undo_enabled || CALL(fstat, fd, &status)) return;
    int writing = lost ? with_access(fd, O_WRONLY) : -1;
    struct undo **at = &undos;
    while (*at) {
        struct undo *undo = *at;
        if (undo->inode != status.st_ino) {
            at = &undo->next;
            continue;
        }
        if (writing >= 0) {
            if (undo->length && CALL(pwrite, writing, undo->old, undo->length, undo->offset) < 0) abort();
            if (CALL(ftruncate, writing, undo->size_before)) abort();
        }
        *at = undo->next;
        free(undo);
    }
    done_with(writing, fd);
}

/* ---- the trace and the faults ---- */

static void record(enum operation operation, int error, ino_t inode, uint64_t offset, const char *path,
                   const char *second, const struct iovec *data, int parts, size_t length) {
    if (trace_fd < 0) return;
    struct __attribute__((packed)) {
        uint32_t magic;
        uint8_t operation;
        int32_t error;
        uint64_t inode, offset, length;
        uint16_t first, second;
    } head = {MAGIC, operation, error, inode, offset, length, strlen(path), second ? strlen(second) : 0};
    size_t total = sizeof head + head.first + head.second + length;
    char *bytes = malloc(total), *at = bytes;
    if (!bytes) abort();
    at = mempcpy(at, &head, sizeof head);
    at = mempcpy(at, path, head.first);
    at = mempcpy(at, second ? second : "", head.second);
    for (int i = 0; i < parts && length; i++) {
        size_t part = data[i].iov_len < length ? data[i].iov_len : length;
        at = mempcpy(at, data[i].iov_base, part);
        length -= part;
    }
    /* One write, so that the trace never ends within a record that another process looks for. */
    for (size_t done = 0; done < total;) {
        ssize_t written = CALL(write, trace_fd, bytes + done, total - done);
        if (written < 0) abort();
        done += written;
    }
    free(bytes);
}

static ino_t inode_of(int fd) {
    struct stat status;
    return CALL(fstat, fd, &status) ? 0 : status.st_ino;
}

static bool is_directory(int fd) {
    struct stat status;
    return !CALL(fstat, fd, &status) && S_ISDIR(status.st_mode);
}

/* Whether a call is to fail: its errno, or 0. `drops` learns whether the rule takes back what was not synced. */
static int fault(enum kind kind, const char *path, bool *drops) {
    int error = 0;
    read_rules();
    for (int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (rule->type == QUOTA || !(rule->kinds & 1u << kind) || fnmatch(rule->glob, path, 0)) continue;
        rule->seen++;
        if (rule->type == COUNT || error || rule->seen < rule->first) continue;
        if (rule->type == KILL) {
            dprintf(log_fd, "%d %s 0 %s\n", i, kind_names[kind], path);
            kill(getpid(), SIGKILL);
        }
        if (rule->times && rule->seen >= rule->first + rule->times) continue;
        error = rule->error;
        if (drops) *drops = rule->type == DROP;
        dprintf(log_fd, "%d %s %d %s\n", i, kind_names[kind], error, path);
    }
    return error;
}

static bool governs(const struct rule *rule, const char *path) {
    size_t length = strlen(rule->glob);
    if (rule->type != QUOTA) return false;
    return !strcmp(rule->glob, ".") ||
           (!strncmp(rule->glob, path, length) && (path[length] == '/' || !path[length]));
}

/* How many of `growth` bytes may be added below every quota; at least one byte must be left for a growth of 0. */
static long long allowed(const char *path, long long growth) {
    long long most = growth;
    for (int i = 0; i < rule_count; i++)
        if (governs(&rules[i], path)) {
            long long left = rules[i].left < 0 ? 0 : rules[i].left;
            if (growth == 0 && left == 0) most = -1;
            else if (left < most) most = left;
            if (most < growth || most < 0) dprintf(log_fd, "%d quota %d %s\n", i, ENOSPC, path);
        }
    return most;
}

static void charge(const char *path, long long growth) {
    for (int i = 0; i < rule_count; i++)
        if (governs(&rules[i], path)) rules[i].left -= growth;
}

static long long size_of_fd(int fd) {
    struct stat status;
    return CALL(fstat, fd, &status) ? 0 : status.st_size;
}

/* What removing a name gives back. */
static long long size_freed(const char *path) {
    struct stat status;
    char whole[2 * PATH_MAX];
    if (CALL(lstat, absolute(path, whole), &status) || !S_ISREG(status.st_mode) || status.st_nlink > 1) return 0;
    return status.st_size;
}

static void lock(void) {
    pthread_mutex_lock(&mutex);
    inside++;
}

static void unlock(void) {
    inside--;
    pthread_mutex_unlock(&mutex);
}

/* The child's only thread has another number than the one that locked, so it cannot unlock. */
static void unlock_in_child(void) {
    static const pthread_mutex_t unlocked = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    inside--;
    mutex = unlocked;
}

/* Ends a call that a rule makes fail. */
#define FAIL_WITH(error, value) do { unlock(); errno = (error); return (value); } while (0)

/* Ends a call whose outcome is `value`. */
#define END(value) do { int ended = errno; unlock(); errno = ended; return (value); } while (0)

__attribute__((constructor)) static void start(void) {
    const char *value = getenv("FAULTFS_ROOT");
    if (!value || !*value || strlen(value) >= PATH_MAX) return;
    if (pthread_atfork(lock, unlock, unlock_in_child)) abort();
    inside++;
    const char *file = getenv("FAULTFS_TRACE");
    if (file) trace_fd = CALL(open, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    file = getenv("FAULTFS_LOG");
    if (file) log_fd = CALL(open, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    file = getenv("FAULTFS_CONTROL");
    if (file && strlen(file) < PATH_MAX) strcpy(control, file);
    undo_enabled = getenv("FAULTFS_UNDO") != NULL;
    strcpy(root, value);
    normalise(root);
    root_length = strlen(root);
    inside--;
}

__attribute__((destructor)) static void finish(void) {
    lock();
    log_counts();
    unlock();
}

/* ---- opening ---- */

static int opened(int directory, const char *path, int flags, mode_t mode, bool large) {
    char buffer[PATH_MAX], whole[2 * PATH_MAX];
    const char *name = below(directory, path, buffer);
    if (large) flags |= O_LARGEFILE;
    if (!name) return CALL(openat, directory, path, flags, mode);
    lock();
    struct stat status;
    bool temporary = (flags & O_TMPFILE) == O_TMPFILE;
    bool missing = !temporary && CALL(lstat, absolute(name, whole), &status);
    bool creates = temporary || ((flags & O_CREAT) && missing);
    int error = fault(creates ? CREATES : OPEN, name, NULL);
    if (!error && creates && allowed(name, 0) < 0) error = ENOSPC;
    if (error) FAIL_WITH(error, -1);
    long long before = !missing && (flags & O_TRUNC) && S_ISREG(status.st_mode) ? status.st_size : 0;
    int fd = CALL(openat, directory, path, flags, mode);
    if (fd >= 0) {
        if (creates && !temporary) record(CREATE, 0, inode_of(fd), 0, name, NULL, NULL, 0, 0);
        else if (before) {
            charge(name, -before);
            record(TRUNCATE, 0, inode_of(fd), 0, name, NULL, NULL, 0, 0);
        }
    }
    END(fd);
}

#define MODE(flags) ({ mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); \
    mode = va_arg(list, mode_t); va_end(list); } mode; })

int open(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags), false); }
int open64(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags), true); }
int openat(int directory, const char *path, int flags, ...) {
    if (inside) { mode_t mode = MODE(flags); return CALL(openat, directory, path, flags, mode); }
    return opened(directory, path, flags, MODE(flags), false);
}
int openat64(int directory, const char *path, int flags, ...) {
    return opened(directory, path, flags, MODE(flags), true);
}
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode, false); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode, true); }

/* ---- reading ---- */

/* The errno with which a call on an open file is to fail, or 0. */
static int fault_fd(enum kind kind, int fd) {
    char buffer[PATH_MAX];
    const char *name = *control ? below_fd(fd, buffer) : NULL;
    if (!name) return 0;
    lock();
    int error = fault(kind, name, NULL);
    unlock();
    return error;
}

static int fault_at(enum kind kind, int directory, const char *path, int flags) {
    char buffer[PATH_MAX];
    if (!*control || !path) return 0;
    if (!*path) return flags & AT_EMPTY_PATH ? fault_fd(kind, directory) : 0;
    const char *name = below(directory, path, buffer);
    if (!name) return 0;
    lock();
    int error = fault(kind, name, NULL);
    unlock();
    return error;
}

#define OR_FAULT(found, value, call) do { int error = (found); if (error) { errno = error; return (value); } \
    return (call); } while (0)

ssize_t read(int fd, void *data, size_t length) { OR_FAULT(fault_fd(READ, fd), -1, CALL(read, fd, data, length)); }
ssize_t pread(int fd, void *data, size_t length, off_t offset) {
    OR_FAULT(fault_fd(READ, fd), -1, CALL(pread, fd, data, length, offset));
}
ssize_t pread64(int fd, void *data, size_t length, off64_t offset) {
    OR_FAULT(fault_fd(READ, fd), -1, CALL(pread64, fd, data, length, offset));
}
ssize_t readv(int fd, const struct iovec *parts, int count) {
    OR_FAULT(fault_fd(READ, fd), -1, CALL(readv, fd, parts, count));
}
ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
    OR_FAULT(fault_fd(READ, fd), -1, CALL(preadv64, fd, parts, count, offset));
}
int stat(const char *path, struct stat *status) {
    OR_FAULT(fault_at(STAT, AT_FDCWD, path, 0), -1, CALL(stat, path, status));
}
int stat64(const char *path, struct stat64 *status) {
    OR_FAULT(fault_at(STAT, AT_FDCWD, path, 0), -1, CALL(stat64, path, status));
}
int lstat(const char *path, struct stat *status) {
    OR_FAULT(fault_at(STAT, AT_FDCWD, path, 0), -1, CALL(lstat, path, status));
}
int lstat64(const char *path, struct stat64 *status) {
    OR_FAULT(fault_at(STAT, AT_FDCWD, path, 0), -1, CALL(lstat64, path, status));
}
int fstat(int fd, struct stat *status) { OR_FAULT(fault_fd(STAT, fd), -1, CALL(fstat, fd, status)); }
int fstat64(int fd, struct stat64 *status) { OR_FAULT(fault_fd(STAT, fd), -1, CALL(fstat64, fd, status)); }
int statx(int directory, const char *restrict path, int flags, unsigned mask, struct statx *restrict status) {
    OR_FAULT(fault_at(STAT, directory, path, flags), -1, CALL(statx, directory, path, flags, mask, status));
}
DIR *opendir(const char *path) { OR_FAULT(fault_at(LIST, AT_FDCWD, path, 0), NULL, CALL(opendir, path)); }
DIR *fdopendir(int fd) { OR_FAULT(fault_fd(LIST, fd), NULL, CALL(fdopendir, fd)); }

/* ---- writing ---- */

/* A write at `offset`, or at the file's position if that is negative. */
static ssize_t written(int fd, const struct iovec *parts, int count, off_t offset) {
    char buffer[PATH_MAX];
    const char *name = below_fd(fd, buffer);
    if (!name) return offset < 0 ? CALL(writev, fd, parts, count) : CALL(pwritev, fd, parts, count, offset);
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    lock();
    int error = fault(WRITES, name, NULL);
    if (error) FAIL_WITH(error, -1);
    off_t at = offset;
    if (at < 0) at = CALL(fcntl, fd, F_GETFL) & O_APPEND ? size_of_fd(fd) : lseek(fd, 0, SEEK_CUR);
    long long before = size_of_fd(fd), growth = (long long)at + (long long)length - before;
    if (growth < 0) growth = 0;
    struct iovec shorter;
    if (growth > 0) {
        long long granted = allowed(name, growth);
        if (granted < growth) {
            /* As a full disk does: what there is room for is written, nothing fails until there is none. */
            size_t rest = (size_t)((long long)length - (growth - granted));
            if ((long long)length <= growth - granted) FAIL_WITH(ENOSPC, -1);
            while (count && !parts->iov_len) parts++, count--;
            shorter = *parts;
            if (shorter.iov_len > rest) shorter.iov_len = rest;
            parts = &shorter;
            count = 1;
            length = shorter.iov_len;
        }
    }
    remember(fd, at, length);
    ssize_t done = offset < 0 ? CALL(writev, fd, parts, count) : CALL(pwritev, fd, parts, count, offset);
    if (done > 0) {
        long long grown = (long long)at + done - before;
        if (grown > 0) charge(name, grown);
        record(WRITE, 0, inode_of(fd), at, name, NULL, parts, count, done);
    }
    END(done);
}

ssize_t write(int fd, const void *data, size_t length) {
    char buffer[PATH_MAX];
    if (inside || !below_fd(fd, buffer)) return CALL(write, fd, data, length);
    struct iovec part = {(void *)data, length};
    return written(fd, &part, 1, -1);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    if (inside) return CALL(pwrite, fd, data, length, offset);
    struct iovec part = {(void *)data, length};
    return written(fd, &part, 1, offset);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    struct iovec part = {(void *)data, length};
    return written(fd, &part, 1, offset);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (inside) return CALL(writev, fd, parts, count);
    return written(fd, parts, count, -1);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    if (inside) return CALL(pwritev, fd, parts, count, offset);
    return written(fd, parts, count, offset);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return written(fd, parts, count, offset);
}

/* Records what another call has written at `offset`, read back. */
static void record_copied(int fd, const char *name, off_t offset, ssize_t length, long long before) {
    char *data = malloc(length);
    int reading = with_access(fd, O_RDONLY);
    if (!data || reading < 0 || CALL(pread, reading, data, length, offset) != length) abort();
    done_with(reading, fd);
    if ((long long)offset + length > before) charge(name, (long long)offset + length - before);
    struct iovec part = {data, length};
    record(WRITE, 0, inode_of(fd), offset, name, NULL, &part, 1, length);
    free(data);
}

/* A copy between files by `call`, which adds to the file at `offset` or, if that is NULL, at its position. */
#define COPIED(fd, offset, length, call) do { \
    char buffer[PATH_MAX]; \
    const char *name = below_fd(fd, buffer); \
    if (!name) return (call); \
    lock(); \
    int error = fault(WRITES, name, NULL); \
    if (error) FAIL_WITH(error, -1); \
    off_t at = (offset) ? *(offset) : lseek(fd, 0, SEEK_CUR); \
    long long before = size_of_fd(fd), growth = (long long)at + (long long)(length) - before; \
    if (growth > 0) { \
        long long granted = allowed(name, growth); \
        if (granted <= 0) FAIL_WITH(ENOSPC, -1); \
        if (granted < growth) length -= growth - granted; \
    } \
    remember(fd, at, length); \
    ssize_t done = (call); \
    if (done > 0) record_copied(fd, name, at, done, before); \
    END(done); \
} while (0)

ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t length, unsigned flags) {
    COPIED(to, to_offset, length, CALL(copy_file_range, from, from_offset, to, to_offset, length, flags));
}
ssize_t sendfile(int to, int from, off_t *from_offset, size_t length) {
    COPIED(to, (off_t *)NULL, length, CALL(sendfile, to, from, from_offset, length));
}
ssize_t sendfile64(int to, int from, off64_t *from_offset, size_t length) {
    COPIED(to, (off_t *)NULL, length, CALL(sendfile64, to, from, from_offset, length));
}

static int resized(int fd, off_t size) {
    char buffer[PATH_MAX];
    const char *name = below_fd(fd, buffer);
    if (!name) return CALL(ftruncate, fd, size);
    lock();
    int error = fault(RESIZE, name, NULL);
    if (error) FAIL_WITH(error, -1);
    long long before = size_of_fd(fd);
    if (size < before) remember(fd, size, before - size);
    else remember(fd, before, 0);
    int done = CALL(ftruncate, fd, size);
    if (!done) {
        /* A hole takes no room. */
        if (size < before) charge(name, (long long)size - before);
        record(TRUNCATE, 0, inode_of(fd), size, name, NULL, NULL, 0, 0);
    }
    END(done);
}
int ftruncate(int fd, off_t size) { return inside ? CALL(ftruncate, fd, size) : resized(fd, size); }
int ftruncate64(int fd, off64_t size) { return resized(fd, size); }

static int reserved(int fd, int mode, off_t offset, off_t length) {
    char buffer[PATH_MAX];
    const char *name = below_fd(fd, buffer);
    if (!name) return CALL(fallocate, fd, mode, offset, length);
    lock();
    int error = fault(RESIZE, name, NULL);
    long long before = size_of_fd(fd), growth = (long long)offset + length - before;
    if (!error && !(mode & FALLOC_FL_KEEP_SIZE) && growth > 0 && allowed(name, growth) < growth) error = ENOSPC;
    if (error) FAIL_WITH(error, -1);
    int done = CALL(fallocate, fd, mode, offset, length);
    if (!done && !(mode & FALLOC_FL_KEEP_SIZE) && growth > 0) {
        charge(name, growth);
        record(TRUNCATE, 0, inode_of(fd), offset + length, name, NULL, NULL, 0, 0);
    }
    END(done);
}
int fallocate(int fd, int mode, off_t offset, off_t length) {
    return inside ? CALL(fallocate, fd, mode, offset, length) : reserved(fd, mode, offset, length);
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) { return reserved(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { return reserved(fd, 0, offset, length) ? errno : 0; }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return reserved(fd, 0, offset, length) ? errno : 0; }

/* ---- syncing ---- */

static int synced(int fd, int data_only) {
    char buffer[PATH_MAX];
    const char *name = below_fd(fd, buffer);
    if (!name) return data_only ? CALL(fdatasync, fd) : CALL(fsync, fd);
    lock();
    bool drops = false;
    int error = fault(FSYNC, name, &drops);
    if (error) {
        if (drops) settle(fd, true);
        record(SYNC_FAILED, error, inode_of(fd), 0, name, NULL, NULL, 0, 0);
        FAIL_WITH(error, -1);
    }
    /* The disk's own time is no part of a test. */
    settle(fd, false);
    record(is_directory(fd) ? SYNC_DIRECTORY : SYNC, 0, inode_of(fd), 0, name, NULL, NULL, 0, 0);
    END(0);
}
int fsync(int fd) { return inside ? CALL(fsync, fd) : synced(fd, 0); }
int fdatasync(int fd) { return inside ? CALL(fdatasync, fd) : synced(fd, 1); }
/* sync_file_range promises nothing about what is on the disk afterwards, so it is no sync point. */

/* ---- names ---- */

int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return renameat2(a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *first = below(a, from, one), *second = below(b, to, two);
    if (!first && !second) return CALL(renameat2, a, from, b, to, flags);
    lock();
    int error = fault(RENAMES, second ? second : first, NULL);
    if (error) FAIL_WITH(error, -1);
    long long freed = second ? size_freed(second) : 0;
    int done = CALL(renameat2, a, from, b, to, flags);
    if (!done) {
        if (freed) charge(second, -freed);
        record(RENAME, 0, 0, 0, first ? first : "", second ? second : "", NULL, 0, 0);
    }
    END(done);
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    char one[PATH_MAX], two[PATH_MAX], whole[2 * PATH_MAX];
    const char *first = below(a, from, one), *second = below(b, to, two);
    if (!second) return CALL(linkat, a, from, b, to, flags);
    lock();
    int error = fault(LINKS, second, NULL);
    if (!error && allowed(second, 0) < 0) error = ENOSPC;
    if (error) FAIL_WITH(error, -1);
    int done = CALL(linkat, a, from, b, to, flags);
    struct stat status;
    if (!done && !CALL(lstat, absolute(second, whole), &status))
        record(LINK, 0, status.st_ino, 0, first ? first : "", second, NULL, 0, 0);
    END(done);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    struct stat status;
    bool directory = !lstat(path, &status) && S_ISDIR(status.st_mode);
    return unlinkat(AT_FDCWD, path, directory ? AT_REMOVEDIR : 0);
}
int unlinkat(int directory, const char *path, int flags) {
    char buffer[PATH_MAX];
    const char *name = below(directory, path, buffer);
    if (!name) return CALL(unlinkat, directory, path, flags);
    lock();
    int error = fault(UNLINKS, name, NULL);
    if (error) FAIL_WITH(error, -1);
    long long freed = size_freed(name);
    int done = CALL(unlinkat, directory, path, flags);
    if (!done) {
        charge(name, -freed);
        record(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, 0, name, NULL, NULL, 0, 0);
    }
    END(done);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int mkdirat(int directory, const char *path, mode_t mode) {
    char buffer[PATH_MAX], whole[2 * PATH_MAX];
    const char *name = below(directory, path, buffer);
    if (!name) return CALL(mkdirat, directory, path, mode);
    lock();
    struct stat status;
    bool exists = !CALL(lstat, absolute(name, whole), &status);
    int error = fault(MKDIRS, name, NULL);
    /* A full disk still says of a directory that it is there. */
    if (!error && !exists && allowed(name, 0) < 0) error = ENOSPC;
    if (error) FAIL_WITH(error, -1);
    int done = CALL(mkdirat, directory, path, mode);
    if (!done && !CALL(lstat, absolute(name, whole), &status))
        record(MKDIR, 0, status.st_ino, 0, name, NULL, NULL, 0, 0);
    END(done);
}
