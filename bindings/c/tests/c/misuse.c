/* Whatever is passed in the wrong place is an error with a code and a text, and changes nothing. */
#include <mneme.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"

static int count(const char *name, void *data)
{
    (void)name;
    return ++*(int *)data == 2;
}

static int look(const char *name, int access, void *data)
{
    (void)data;
    MUST(strcmp(name, "s") == 0 || strcmp(name, "r") == 0);
    MUST(access == (name[0] == 's' ? READ | WRITE : READ));
    return 0;
}

static void names(void)
{
    REFUSED(MNEME_EINVAL, vas_find(NULL) == NULL);
    REFUSED(MNEME_ENOTFOUND, vas_find("nobody") == NULL);
    REFUSED(MNEME_ENOTFOUND, seg_find("nobody") == NULL);
    REFUSED(MNEME_ENAME, vas_create("", 0600) == NULL);
    REFUSED(MNEME_ENAME, vas_create("a/b", 0600) == NULL);
    REFUSED(MNEME_ENAME, vas_create("\xff\xfe", 0600) == NULL);
    REFUSED(MNEME_EINVAL, vas_create("x", 0777) == NULL);
    REFUSED(MNEME_EINVAL, seg_alloc("x", NULL, 1, 0600) == NULL);
    REFUSED(MNEME_EINVAL, seg_alloc("x", NULL, SIZE_MAX, 0600) == NULL);
    REFUSED(MNEME_EINVAL, seg_alloc_in("x", NULL, 1 << 24, 0600, 9, NULL) == NULL);
    REFUSED(MNEME_EINVAL, seg_alloc_in("x", NULL, 1 << 24, 0600, SEG_FILE, NULL) == NULL);
    REFUSED(MNEME_EADDRESS, seg_alloc("x", (void *)0xC0DE, 1 << 24, 0600) == NULL);
    MUST(strstr(mneme_error(), "0xc0de"));
    REFUSED(MNEME_EREGISTRY, mneme_registry("/proc/none/such") == -1);
    REFUSED(MNEME_EINVAL, mneme_registry(NULL) == -1);
    segid_t file = seg_alloc_in("file", NULL, 1 << 24, 0600, SEG_FILE, getenv("MNEME_DIR"));
    MUST(file && seg_delete(file) == 0);
    void *base;
    size_t bytes;
    MUST(mneme_window(&base, &bytes) == 0 && mneme_window(NULL, NULL) == 0 && bytes >= (size_t)1 << 30);
    segid_t there = seg_alloc("there", (char *)base + bytes - ((size_t)1 << 30), 1 << 24, 0600);
    seg_stat_t stat;
    MUST(there && seg_ctl(there, SEG_STAT, &stat) == 0 && seg_delete(there) == 0);
    MUST((char *)stat.base == (char *)base + bytes - ((size_t)1 << 30));
}

static void handles(vasid_t vid, segid_t sid, vhandle_t vh)
{
    void *wrong[] = {NULL, (void *)1, (void *)2, (void *)3, (void *)-1, &vid, (char *)vid + 0x100, (void *)sid, (void *)vh};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        vasid_t none = (vasid_t)wrong[i];
        REFUSED(MNEME_EHANDLE, vas_attach(none) == NULL);
        REFUSED(MNEME_EHANDLE, vas_clone(none) == NULL);
        REFUSED(MNEME_EHANDLE, vas_delete(none) == -1);
        REFUSED(MNEME_EHANDLE, seg_attach(none, sid) == -1);
        REFUSED(MNEME_EHANDLE, vas_ctl(VAS_CHMOD, none, 0600) == -1);
        REFUSED(MNEME_EHANDLE, vas_members(none, look, NULL) == -1);
    }
    REFUSED(MNEME_EHANDLE, vas_switch(NULL) == -1);
    REFUSED(MNEME_EHANDLE, vas_switch(CURRENT) == -1);
    REFUSED(MNEME_EHANDLE, vas_switch((vhandle_t)(void *)vid) == -1);
    REFUSED(MNEME_EHANDLE, vas_detach(NULL) == -1);
    REFUSED(MNEME_EHANDLE, seg_attach(vid, (segid_t)(void *)vid) == -1);
    REFUSED(MNEME_EHANDLE, seg_clone(NULL) == NULL);
    REFUSED(MNEME_EHANDLE, seg_ctl((segid_t)NULL, SEG_GROW, 1) == -1);
    REFUSED(MNEME_EINVAL, seg_ctl(sid, 99) == -1);
    REFUSED(MNEME_EINVAL, seg_ctl(sid, SEG_STAT) == -1);
    REFUSED(MNEME_EINVAL, vas_ctl(99, vid) == -1);
    REFUSED(MNEME_EINVAL, vas_list(NULL, NULL) == -1);
    REFUSED(MNEME_EINVAL, vas_attach_as(vid, 0) == NULL);
    REFUSED(MNEME_EINVAL, vas_switch_as(vh, WRITE) == -1);
    REFUSED(MNEME_EEXIST, seg_attach(vid, sid) == -1);
    REFUSED(MNEME_EEXIST, vas_create("v", 0600) == NULL);
    REFUSED(MNEME_ENOMEM, seg_ctl(sid, SEG_GROW, (size_t)1 << 40) == -1);
}

static void blocks(vasid_t vid, segid_t sid, vhandle_t vh)
{
    char outside[64];
    REFUSED(MNEME_EOUTSIDE, vas_malloc(8) == NULL);
    REFUSED(MNEME_EOUTSIDE, seg_malloc(sid, 8) == NULL);
    REFUSED(MNEME_EOUTSIDE, seg_root(sid) == NULL);
    REFUSED(MNEME_EOUTSIDE, vas_free(outside) == -1);
    MUST(vas_free(NULL) == 0);

    MUST(vas_switch(vh) == 0 && vas_current() == vh);
    MUST(seg_root(sid) == NULL && mneme_code() == MNEME_OK);
    char *block = vas_malloc(40);
    MUST(block && vas_usable_size(block) >= 40 && (uintptr_t)block % 16 == 0);
    memset(block, 'x', 40);
    char *zeroed = seg_calloc(sid, 10, 10);
    MUST(zeroed && zeroed[0] == 0 && zeroed[99] == 0);
    char *aligned = seg_aligned_alloc(sid, 4096, 1);
    MUST(aligned && (uintptr_t)aligned % 4096 == 0);
    REFUSED(MNEME_EINVAL, seg_aligned_alloc(sid, 3, 1) == NULL);
    REFUSED(MNEME_ENOMEM, vas_calloc(SIZE_MAX, 2) == NULL);
    REFUSED(MNEME_ENOMEM, vas_malloc((size_t)1 << 40) == NULL);
    REFUSED(MNEME_ENOMEM, vas_malloc(SIZE_MAX) == NULL);
    REFUSED(MNEME_ENOMEM, vas_realloc(block, (size_t)1 << 40) == NULL);
    block = vas_realloc(block, 1 << 20);
    MUST(block && block[0] == 'x' && block[39] == 'x');
    void *empty = vas_malloc(0);
    MUST(empty && empty != vas_malloc(0));
    REFUSED(MNEME_EINVAL, vas_free(outside) == -1);
    REFUSED(MNEME_EINVAL, vas_free(block + 8) == -1);
    REFUSED(MNEME_EINVAL, seg_set_root(sid, block + 8) == -1);
    REFUSED(MNEME_EINVAL, seg_set_root(sid, outside) == -1);
    MUST(seg_set_root(sid, block) == 0 && seg_root(sid) == block);
    MUST(vas_free(empty) == 0);
    REFUSED(MNEME_EINVAL, vas_free(empty) == -1);

    /* Inside, some things wait for nothing and say so. */
    REFUSED(MNEME_EINSIDE, vas_detach(vh) == -1);
    REFUSED(MNEME_EINSIDE, seg_ctl(sid, SEG_REBUILD) == -1);
    REFUSED(MNEME_EBUSY, seg_delete(sid) == -1);
    REFUSED(MNEME_EBUSY, vas_delete(vid) == -1);

    MUST(vas_switch_as(vh, READ) == 0 && seg_root(sid) == block);
    REFUSED(MNEME_EREADONLY, vas_malloc(8) == NULL);
    REFUSED(MNEME_EREADONLY, seg_malloc(sid, 8) == NULL);
    REFUSED(MNEME_EREADONLY, seg_set_root(sid, NULL) == -1);
    REFUSED(MNEME_EINVAL, vas_free(block) == -1);
    MUST(vas_switch(PRIMARY) == 0 && vas_current() == PRIMARY);
}

/* Segments come and go under the feet of a thread that is inside, where it says so itself. */
static void members(vasid_t vid, segid_t sid, vhandle_t vh)
{
    MUST(vas_switch(vh) == 0);
    segid_t other = seg_alloc("r", NULL, 1 << 24, 0600);
    MUST(other && seg_attach(vid, other) == 0);
    MUST(seg_malloc(other, 8) != NULL && seg_malloc(sid, 8) != NULL);
    REFUSED(MNEME_EAMBIGUOUS, vas_malloc(8) == NULL);
    MUST(vas_access(vid, other, READ) == 0);
    REFUSED(MNEME_EREADONLY, seg_malloc(other, 8) == NULL);
    MUST(vas_malloc(8) != NULL && vas_current() == vh);
    MUST(vas_members(vid, look, NULL) == 2);
    MUST(seg_detach(vid, other) == 0);
    REFUSED(MNEME_EOUTSIDE, seg_malloc(other, 8) == NULL);
    REFUSED(MNEME_ENOTFOUND, seg_detach(vid, other) == -1);

    /* For this handle alone, by its name or as CURRENT. */
    MUST(seg_attach(vh, other) == 0 && seg_malloc(other, 8) != NULL);
    MUST(vas_members(vid, look, NULL) == 1);
    MUST(seg_detach(CURRENT, other) == 0);
    REFUSED(MNEME_EOUTSIDE, seg_malloc(other, 8) == NULL);
    MUST(vas_switch(PRIMARY) == 0);

    /* In the primary space. */
    MUST(seg_attach(CURRENT, other) == 0 && vas_malloc(8) != NULL && vas_current() == PRIMARY);
    MUST(seg_attach(CURRENT, sid) == 0 && seg_root(sid) != NULL);
    MUST(seg_detach(CURRENT, other) == 0 && vas_malloc(8) != NULL);
    MUST(seg_detach(CURRENT, sid) == 0);
    REFUSED(MNEME_EOUTSIDE, vas_malloc(8) == NULL);
    REFUSED(MNEME_ENOTFOUND, seg_detach(CURRENT, sid) == -1);
    MUST(seg_delete(other) == 0);
    REFUSED(MNEME_EHANDLE, seg_delete(other) == -1);
}

static void clones(vasid_t vid, segid_t sid, vhandle_t vh)
{
    segid_t clone = seg_clone(sid), second = seg_clone(sid);
    MUST(clone && second && clone == seg_find("s~1") && second == seg_find("s~2"));
    REFUSED(MNEME_EEXIST, seg_clone_as(sid, "s~1") == NULL);
    REFUSED(MNEME_EOVERLAP, seg_attach(vid, clone) == -1);
    seg_stat_t one, other;
    MUST(seg_ctl(sid, SEG_STAT, &one) == 0 && seg_ctl(clone, SEG_STAT, &other) == 0);
    MUST(one.base == other.base && memcmp(one.uuid, other.uuid, 16) != 0 && strcmp(other.name, "s~1") == 0);
    MUST(one.max_size == 1 << 24 && one.size <= one.max_size && one.mode == 0660 && one.poisoned == 0);

    /* The two are there in turns. */
    vasid_t vid2 = vas_clone(vid);
    MUST(vid2 && vid2 != vid && vid2 == vas_find("v~1"));
    MUST(seg_detach(vid2, sid) == 0 && seg_attach(vid2, clone) == 0);
    vhandle_t vh2 = vas_attach(vid2);
    MUST(vas_switch(vh) == 0);
    char *root = seg_root(sid);
    MUST(root && root[0] == 'x');
    root[0] = 'y';
    MUST(vas_switch(vh2) == 0 && seg_root(clone) == root && root[0] == 'x');
    REFUSED(MNEME_EOUTSIDE, seg_root(sid) == NULL);
    MUST(vas_switch(vh) == 0 && root[0] == 'y');
    MUST(vas_switch(PRIMARY) == 0);
    MUST(vas_detach(vh2) == 0);
    /* Back to what the clone has kept. */
    REFUSED(MNEME_EHANDLE, seg_ctl(sid, SEG_RESTORE) == -1);
    REFUSED(MNEME_EINVAL, seg_ctl(sid, SEG_RESTORE, sid) == -1);
    MUST(seg_ctl(sid, SEG_RESTORE, clone) == 0 && seg_ctl(sid, SEG_SYNC) == 0);
    MUST(vas_switch(vh) == 0 && seg_root(sid) == root && root[0] == 'x');
    REFUSED(MNEME_EINSIDE, seg_ctl(sid, SEG_RESTORE, clone) == -1);
    REFUSED(MNEME_EINSIDE, seg_ctl(sid, SEG_SYNC) == -1);
    MUST(vas_switch(PRIMARY) == 0);
    REFUSED(MNEME_EHANDLE, vas_switch(vh2) == -1);
    MUST(vas_delete(vid2) == 0 && seg_delete(clone) == 0 && seg_delete(second) == 0);
    REFUSED(MNEME_EHANDLE, vas_attach(vid2) == NULL);
}

/* What a pointer may be cast to, and where it lies. */
static void casts(segid_t sid, vhandle_t vh)
{
    int local;
    mneme_place_t place;
    segid_t other = seg_alloc("other", NULL, 1 << 24, 0600);
    vasid_t vid2 = vas_create("v2", 0600);
    MUST(other && vid2 && seg_attach(vid2, other) == 0);
    vhandle_t vh2 = vas_attach(vid2);
    const uint64_t *bounds = mneme_bounds(), *sections = mneme_sections();
    MUST(vh2 && vas_switch(vh) == 0);
    char *block = seg_malloc(sid, 8);
    MUST(block && bounds[0] <= (uintptr_t)block && (uintptr_t)block < bounds[1]);
    MUST((uintptr_t)&local < bounds[0] || bounds[1] <= (uintptr_t)&local);
    MUST(vas_cast(block, vh) == block && vas_cast(NULL, vh) == NULL);
    REFUSED(MNEME_EOUTSIDE, vas_cast(block, vh2) == NULL);
    REFUSED(MNEME_EOUTSIDE, vas_cast(block, PRIMARY) == NULL);
    REFUSED(MNEME_EOUTSIDE, vas_cast(&local, vh) == NULL);
    REFUSED(MNEME_EHANDLE, vas_cast(block, NULL) == NULL);
    MUST(vas_cast(&local, PRIMARY) == &local);

    uint64_t section = *sections;
    MUST(mneme_place(block, &place) == MNEME_INSIDE && mneme_place(block, NULL) == MNEME_INSIDE);
    MUST((char *)place.base <= block && (size_t)(block - (char *)place.base) < place.bytes);
    MUST(place.segment != 0 && place.access == (READ | WRITE));
    MUST(mneme_place(&local, &place) == MNEME_COMMON && mneme_place(NULL, NULL) == MNEME_COMMON);
    MUST(*sections == section);
    MUST(vas_switch_as(vh, READ) == 0 && *sections != section);
    MUST(mneme_place(block, &place) == MNEME_INSIDE && place.access == READ);
    MUST(vas_switch(vh2) == 0 && mneme_place(block, &place) == MNEME_OUTSIDE);
    MUST(vas_switch(PRIMARY) == 0 && mneme_place(block, &place) == MNEME_OUTSIDE);
    MUST(seg_attach(CURRENT, sid) == 0 && mneme_place(block, NULL) == MNEME_INSIDE);
    MUST(vas_cast(block, PRIMARY) == block && vas_free(block) == 0);
    MUST(seg_detach(CURRENT, sid) == 0);
    MUST(vas_detach(vh2) == 0 && vas_delete(vid2) == 0 && seg_delete(other) == 0);
}

/* A number that another process made stale, by removing the segment and making one anew under its name and at its
 * address, is no number of the new one. */
static void stale(vasid_t vid, vhandle_t vh)
{
    segid_t old = seg_alloc("old", NULL, 1 << 24, 0600);
    char command[4096];
    seg_stat_t before, after;
    MUST(old && seg_ctl(old, SEG_STAT, &before) == 0);
    snprintf(command, sizeof command, "rm -r \"$MNEME_DIR/segments/old\"");
    MUST(system(command) == 0);
    segid_t anew = seg_alloc("old", NULL, 1 << 24, 0600);
    MUST(anew && anew != old && seg_ctl(anew, SEG_STAT, &after) == 0 && before.base == after.base);
    REFUSED(MNEME_ESTALE, seg_ctl(old, SEG_GROW, 1 << 22) == -1);
    REFUSED(MNEME_ESTALE, seg_attach(vid, old) == -1);

    MUST(vas_switch(vh) == 0 && seg_attach(vid, anew) == 0);
    char *block = seg_malloc(anew, 8);
    MUST(block && seg_set_root(anew, block) == 0);
    REFUSED(MNEME_EOUTSIDE, seg_malloc(old, 8) == NULL);
    REFUSED(MNEME_EOUTSIDE, seg_root(old) == NULL);
    REFUSED(MNEME_EOUTSIDE, seg_set_root(old, NULL) == -1);
    REFUSED(MNEME_ESTALE, vas_access(vid, old, READ) == -1);
    REFUSED(MNEME_ESTALE, seg_detach(vid, old) == -1);
    MUST(seg_root(anew) == block && seg_detach(vid, anew) == 0 && vas_switch(PRIMARY) == 0);

    MUST(seg_attach(CURRENT, anew) == 0);
    REFUSED(MNEME_ENOTFOUND, seg_detach(CURRENT, old) == -1);
    MUST(seg_root(anew) == block && seg_detach(CURRENT, anew) == 0 && seg_delete(anew) == 0);
    REFUSED(MNEME_ENOTFOUND, seg_delete(old) == -1);
}

int main(void)
{
    MUST(mneme_code() == MNEME_OK && mneme_error()[0] == 0 && mneme_version() == MNEME_VERSION);
    names();
    vasid_t vid = vas_create("v", 660);
    segid_t sid = seg_alloc("s", NULL, 1 << 24, 660);
    MUST(vid && sid && vid == vas_find("v") && sid == seg_find("s"));
    MUST(seg_attach(vid, sid) == 0);
    vas_stat_t stat;
    MUST(vas_ctl(VAS_STAT, vid, &stat) == 0 && stat.members == 1 && stat.mode == 0660 && stat.version == 2);
    MUST(strcmp(stat.name, "v") == 0);
    vhandle_t vh = vas_attach(vid);
    MUST(vh && vas_current() == PRIMARY);
    handles(vid, sid, vh);
    blocks(vid, sid, vh);
    members(vid, sid, vh);
    clones(vid, sid, vh);
    casts(sid, vh);
    stale(vid, vh);

    MUST(seg_ctl(sid, SEG_CHMOD, READ | WRITE) == 0 && vas_ctl(VAS_CHMOD, vid, 600) == 0);
    MUST(seg_ctl(sid, SEG_GROW, 1 << 22) == 0 && seg_ctl(sid, SEG_CHECK) == 0);
    MUST(vas_create("w", 0600) && vas_create("x", 0600));
    int names = 0;
    MUST(vas_list(count, &names) == 2 && names == 2);
    names = -10;
    MUST(seg_list(count, &names) == 1);

    /* One that is made anew under the name is another. */
    MUST(vas_detach(vh) == 0 && seg_ctl(sid, SEG_REBUILD) == 0 && seg_delete(sid) == 0);
    REFUSED(MNEME_EHANDLE, seg_ctl(sid, SEG_CHECK) == -1);
    segid_t again = seg_alloc("s", NULL, 1 << 24, 660);
    MUST(again && again != sid);
    REFUSED(MNEME_ESTALE, vas_attach(vid) == NULL);
    MUST(vas_delete(vid) == 0 && seg_delete(again) == 0);
    return 0;
}
