/* Percent-encoding of link names (as RFC 3986, section 2.1, spells it). */
#include "fs/escaped_names.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define KEPT_BYTES 200 /* of a name that is cut, before its hash */

static bool is_escape(const char *s)
{
    return s[0] == '%' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2]);
}

static bool is_dots(const char *s)
{
    return !strcmp(s, ".") || !strcmp(s, "..");
}

/* What has another meaning: then its first character is encoded. */
static bool is_reserved(const char *link, bool in_root)
{
    return is_dots(link) || (in_root && !strcmp(link, NAME_CONTROL)) ||
           !strncmp(link, NAME_EXTERNAL, sizeof(NAME_EXTERNAL) - 1) ||
           !strcmp(link, NAME_USER_DEFINED) || !strcmp(link, NAME_TOO_DEEP);
}

static bool must_encode(const char *link, bool in_root)
{
    if (is_reserved(link, in_root))
        return true;
    for (const char *c = link; *c; c++)
        if (*c == '/' || is_escape(c) || (c[0] == '%' && c[1] == '~'))
            return true;
    return false;
}

/* FNV-1a, 64 bits: names the cut part; a collision would hide one of two links. */
static uint64_t hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

void link_name_encode(const char *link, bool in_root, char name[NAME_BYTES])
{
    bool encode = must_encode(link, in_root);
    bool is_other = is_reserved(link, in_root);
    size_t n = 0, kept = 0;
    for (const char *c = link; *c; c++) {
        bool escape = encode && (*c == '%' || *c == '/' || (*c == '.' && is_dots(link)) ||
                                 (is_other && c == link));
        if (n + (escape ? 3 : 1) >= NAME_BYTES) {
            snprintf(name + kept, NAME_BYTES - kept, "%%~%016" PRIx64, hash(link));
            return;
        }
        if (escape)
            n += (size_t)snprintf(name + n, NAME_BYTES - n, "%%%02X", (unsigned char)*c);
        else
            name[n++] = *c;
        bool is_inside = ((unsigned char)c[1] & 0xC0) == 0x80; /* of a UTF-8 character */
        if (n <= KEPT_BYTES && !is_inside)
            kept = n;
    }
    name[n] = '\0';
}

bool link_name_is_cut(const char *name)
{
    return strstr(name, "%~") != NULL;
}

bool link_name_decode(const char *name, bool in_root, char link[NAME_BYTES])
{
    char again[NAME_BYTES];
    size_t n = 0;
    if (strlen(name) >= NAME_BYTES)
        return false;
    for (const char *c = name; *c; n++) {
        unsigned value = (unsigned char)*c;
        if (is_escape(c)) {
            sscanf(c + 1, "%2x", &value);
            c += 3;
        } else {
            c++;
        }
        if (value == 0)
            return false;
        link[n] = (char)value;
    }
    link[n] = '\0';
    /* Only the one spelling that we show is a name. */
    link_name_encode(link, in_root, again);
    return !strcmp(name, again);
}

bool link_name_for_group(const char *name, bool in_root, char link[NAME_BYTES])
{
    return link_name_decode(name, in_root, link) && !strchr(link, '/') && strcmp(link, ".") != 0;
}
