// The header in C++: the two meanings of seg_attach are overloads there.
#include <mneme.h>
#include <cstdio>
#include <new>

struct Point {
    int x, y;
};

int main()
{
    vasid_t vid = vas_create("v", 0600);
    segid_t sid = seg_alloc("s", nullptr, 1 << 24, 0600);
    if (!vid || !sid || seg_attach(vid, sid) != 0) return 1;
    vhandle_t vh = vas_attach(vid);
    if (vas_switch(vh) != 0) return 2;
    Point *point = new (vas_malloc(sizeof(Point))) Point{3, 4};
    if (seg_set_root(sid, point) != 0) return 3;
    if (vas_switch(PRIMARY) != 0) return 4;
    if (seg_attach(CURRENT, sid) != 0 || static_cast<Point *>(seg_root(sid))->y != 4) return 5;
    if (seg_detach(CURRENT, sid) != 0) return 6;
    seg_stat_t stat;
    if (seg_ctl(sid, SEG_STAT, &stat) != 0 || seg_ctl(sid, SEG_CHECK) != 0) return 7;
    mneme_options_t options = mneme_options_t();
    options.capacity = 64 << 20;
    mneme_store_t store = mneme_create("t", &options);
    if (!store || mneme_put(store, "k", 1, "value", 5) != 0 || mneme_contains(store, "k", 1) != 1) return 8;
    mneme_bytes_t keys[] = {{"k", 1}, {"none", 4}};
    size_t lengths[] = {0, 99};
    auto each = [](size_t index, const void *value, size_t length, void *data) {
        static_cast<size_t *>(data)[index] = value ? length : 7;
        return 0;
    };
    if (mneme_get_many(store, keys, 2, each, lengths) != 0 || lengths[0] != 5 || lengths[1] != 7) return 9;
    if (mneme_detach(store) != 0 || seg_delete(seg_find("t")) != 0) return 10;
    std::printf("%s\n", stat.name);
    return 0;
}
