/* sparsectl: chooses the command and runs it. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/open_source.h"
#include "common/descriptors.h"
#include "common/parse_size.h"
#include "config.h"

#define DESCRIPTORS 4096 /* for files of sources */

static const struct command *const commands[] = {
    &create_command, &import_command,  &export_command, &info_command,  &dump_command,
    &check_command,  &recover_command, &repack_command, &image_command,
};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

static void print_help(void)
{
    puts(
        "usage: sparsectl [--external-files DIR] [--chunk-memory SIZE] COMMAND ...\n"
        "\n"
        "Makes, converts, shows and checks sparse datasets in HDF5 files.\n"
        "\n"
        "  create   a new sparse dataset\n"
        "  import   a sparse dataset out of a dense one\n"
        "  export   a dense dataset out of a sparse one\n"
        "  info     what is stored, how densely, in how many bytes\n"
        "  dump     defined coordinates and values as text\n"
        "  check    verify every structure of a file\n"
        "  recover  what a writer that died has left\n"
        "  repack   a copy of a file without free space\n"
        "  image    a consistent image of a file on standard output\n"
        "\n"
        "sparsectl COMMAND --help says more.\n"
        "\n"
        "  --external-files DIR, before COMMAND: files that a file names (external raw data,\n"
        "                  sources of virtual datasets) may be in DIR and below, too, not only\n"
        "                  in its own folder and below\n"
        "  --chunk-memory SIZE, before COMMAND: most memory that reading one chunk may take, in\n"
        "                  bytes or with K, M, G or T (default: 4G, or a quarter of the machine's\n"
        "                  if that is less)\n"
        "  -V, --version   print the version, and those of libraries\n"
        "  -h, --help      print this\n"
        "\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage. See sparsectl(1).");
}

static void print_version(void)
{
    char library[64];
    printf("sparsectl %s (libhdf5 %s)\nfilters by ", SPARSEFS_VERSION, sfs_hdf5_version());
    for (size_t i = 0; sfs_filter_library(i, library, sizeof(library)); i++)
        printf("%s%s", i > 0 ? ", " : "", library);
    putchar('\n');
}

/* The value of an option as --option=value or --option value; NULL: it is another one, or none.
 * *n is how many arguments they are. */
static const char *value_of(const char *option, int argc, char **argv, int *n)
{
    size_t length = strlen(option);
    if (strncmp(argv[0], option, length) != 0)
        return NULL;
    *n = argv[0][length] == '=' ? 1 : 2;
    if (*n == 1)
        return argv[0] + length + 1;
    return argv[0][length] || argc < 2 ? NULL : argv[1];
}

/* Options before the command; how many arguments they are, or -1 after a message. */
static int take_options(int argc, char **argv)
{
    int taken = 0;
    for (int n; taken + 1 < argc; taken += n) {
        const char *value;
        char **at = argv + 1 + taken;
        int left = argc - 1 - taken;
        size_t bytes;
        if ((value = value_of("--external-files", left, at, &n))) {
            source_allow(value);
        } else if ((value = value_of("--chunk-memory", left, at, &n))) {
            if (!size_parse(value, &bytes)) {
                fprintf(stderr, "sparsectl: --chunk-memory %s: not a size (see sparsectl --help)\n",
                        value);
                return -1;
            }
            source_limit_chunks(bytes);
        } else {
            break;
        }
    }
    return taken;
}

/* The help of a command is asked for by any argument before "--". */
static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
            return true;
    return false;
}

/* Selections, encoded ones and what is found in blocks are of some hundred KiB to megabytes, and
 * come and go with every chunk: given back to the kernel each time they would cost page faults. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
}

int main(int argc, char **argv)
{
    keep_memory();
    if (!descriptors_fill_standard())
        return FAILED;
    (void)descriptors_allow(DESCRIPTORS);
    sfs_leave_hdf5_at_exit();
    int taken = take_options(argc, argv);
    if (taken < 0)
        return USAGE;
    argc -= taken;
    argv += taken;
    if (argc < 2) {
        fputs("sparsectl: a command is wanted (see sparsectl --help)\n", stderr);
        return USAGE;
    }
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")) {
        print_help();
        return finish_output(DONE);
    }
    if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version")) {
        print_version();
        return finish_output(DONE);
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(argv[1], commands[i]->name) != 0)
            continue;
        if (wants_help(argc - 1, argv + 1)) {
            puts(commands[i]->help);
            return finish_output(DONE);
        }
        messages_begin();
        int error =
            commands[i]->hdf5 == NO_HDF5 ? 0 : files_keep_apart(commands[i]->hdf5 == COPY_HDF5);
        if (error)
            return fail(error, "a process for libhdf5");
        return commands[i]->run(argc - 1, argv + 1);
    }
    fprintf(stderr, "sparsectl: no such command: %s (see sparsectl --help)\n", argv[1]);
    return USAGE;
}
