/* statvfs64(), which Python calls, of the process that looks at volumes, as a test wants it to answer. The file PATH.answer beside a
   folder says how: `hang`, or the number of an error, or `BYTES FREE INODES INODES_FREE`. Without such a file the
   real call answers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

int statvfs64(const char *path, struct statvfs64 *out)
{
    char name[4096], word[64] = "";
    unsigned long bytes, bytes_free, inodes, inodes_free;
    snprintf(name, sizeof name, "%s.answer", path);
    FILE *file = fopen(name, "r");
    if (file == NULL) {
        int (*real)(const char *, struct statvfs64 *) =
            (int (*)(const char *, struct statvfs64 *))dlsym(RTLD_NEXT, "statvfs64");
        return real(path, out);
    }
    int count = fscanf(file, "%lu %lu %lu %lu", &bytes, &bytes_free, &inodes, &inodes_free);
    if (count == 0 && fscanf(file, "%63s", word) == 1 && strcmp(word, "hang") == 0) {
        fclose(file);
        for (;;)
            pause();
    }
    fclose(file);
    if (count == 1) {
        errno = (int)bytes;
        return -1;
    }
    memset(out, 0, sizeof *out);
    out->f_bsize = out->f_frsize = 1;
    out->f_blocks = bytes;
    out->f_bfree = out->f_bavail = bytes_free;
    out->f_files = inodes;
    out->f_ffree = out->f_favail = inodes_free;
    return 0;
}
