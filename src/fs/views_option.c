/* The words of the option views=. */
#include "fs/views_option.h"

#include <stddef.h>
#include <string.h>

#define VIEW(kind) (1u << VIEW_##kind)
#define CSR_VIEWS  (VIEW(CSR_INDPTR) | VIEW(CSR_INDICES) | VIEW(CSR_DATA) | VIEW(CSR_TOML))

static unsigned views_of_word(const char *word, size_t n)
{
    static const struct {
        const char *word;
        unsigned views;
    } words[] = {
        {"raw", VIEW(RAW)},
        {"defined", VIEW(DEFINED)},
        {"npy", VIEW(NPY)},
        {"tiff", VIEW(TIFF)},
        {"values", VIEW(VALUES)},
        {"npz", VIEW(NPZ)},
        {"stack", VIEW(STACK_RAW) | VIEW(STACK_NPY)},
        {"csr", CSR_VIEWS},
        {"text", VIEW(VALUE_TXT)},
        {"ragged", VIEW(OFFSETS) | VIEW(RAGGED)},
        {"lines", VIEW(LINES)},
        {"stack.tif", VIEW(STACK_TIFF)},
        {"png", VIEW(PNG)},
        {"cbf", VIEW(CBF)},
        {"csv", VIEW(CSV)},
        {"zarr", VIEW(CHUNK) | VIEW(ZARRAY) | VIEW(ZATTRS)},
        {"default", DEFAULT_VIEWS},
        {"all", ALL_VIEWS},
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strlen(words[i].word) == n && memcmp(words[i].word, word, n) == 0)
            return words[i].views;
    return 0;
}

bool views_parse(const char *value, unsigned *views)
{
    *views = 0;
    for (const char *word = value;; word++) {
        size_t n = strcspn(word, "+");
        unsigned more = views_of_word(word, n);
        if (!more)
            return false;
        *views |= more;
        word += n;
        if (*word == '\0')
            return true;
    }
}
