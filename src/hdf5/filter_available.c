/* Whether libhdf5 has a filter: its own, one of ours, or by a plugin; and what is said where it has none. */
#include <errno.h>
#include <stdio.h>

#include "hdf5/local.h"
#include "hdf5/private.h"

bool filter_is_available(int id)
{
    bool available =
        id > 0 && id != FILTER_HAND && (H5Zfilter_avail(id) > 0 || filter_register_own(id));
    H5Eclear2(H5E_DEFAULT);
    return available;
}

bool local_filter_available(int id)
{
    library_enter();
    bool available = filter_is_available(id);
    library_leave();
    return available;
}

int filter_failed_for(const struct sfs_filter *filter, int error, const char *why)
{
    char text[200];
    snprintf(text, sizeof(text), why, filter->id);
    return library_failed_because(error, text);
}

int filter_look_for(const struct sfs_filter *filter, bool decoding)
{
    unsigned can = 0;
    if (!filter_is_available(filter->id) || filter_own_lacks(filter))
        return filter_failed_for(filter, -EOPNOTSUPP, FILTER_IS_MISSING);
    if (H5Zget_filter_info(filter->id, &can) < 0)
        return library_failed(-EOPNOTSUPP);
    if (decoding && !(can & H5Z_FILTER_CONFIG_DECODE_ENABLED))
        return filter_failed_for(filter, -EOPNOTSUPP, "filter %d can only encode here");
    if (!decoding && !(can & H5Z_FILTER_CONFIG_ENCODE_ENABLED))
        return filter_failed_for(filter, -EOPNOTSUPP, "filter %d can only decode here");
    return 0;
}
