/* Berkeley DB's methods are pointers in its structures, so these functions call them. One thread;
 * every transaction is synced (DB_TXN_SYNC, the default). An answer that is not 0 is an error of
 * Berkeley DB's or of the system's. */

#include <db.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    DB_ENV *env;
    DB *db;
    uint64_t written; /* bytes since the last checkpoint */
} mneme_bdb;

enum { NOT_FOUND = 1 };

/* The log is removed up to the last checkpoint: it is made for each 64 MiB. */
static const uint64_t CHECKPOINT = 64 << 20;

static DBT dbt(const void *data, size_t len) {
    DBT dbt;
    memset(&dbt, 0, sizeof dbt);
    dbt.data = (void *)data;
    dbt.size = (u_int32_t)len;
    return dbt;
}

void mneme_bdb_close(mneme_bdb *store) {
    if (store->db != NULL)
        (void)store->db->close(store->db, 0);
    if (store->env != NULL)
        (void)store->env->close(store->env, 0);
    free(store);
}

int mneme_bdb_open(const char *directory, uint64_t cache, mneme_bdb **out) {
    const u_int32_t env_flags =
        DB_CREATE | DB_PRIVATE | DB_INIT_MPOOL | DB_INIT_LOG | DB_INIT_LOCK | DB_INIT_TXN;
    mneme_bdb *store = calloc(1, sizeof *store);
    int error;
    if (store == NULL)
        return ENOMEM;
    if ((error = db_env_create(&store->env, 0)) != 0)
        goto failed;
    DB_ENV *env = store->env;
    if ((error = env->set_cachesize(env, cache >> 30, cache & ((1 << 30) - 1), 1)) != 0 ||
        (error = env->set_lk_max_locks(env, 200000)) != 0 ||
        (error = env->set_lk_max_objects(env, 200000)) != 0 ||
        (error = env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1)) != 0 ||
        (error = env->open(env, directory, env_flags, 0600)) != 0 ||
        (error = db_create(&store->db, env, 0)) != 0 ||
        (error = store->db->open(store->db, NULL, "records", NULL, DB_BTREE,
                                 DB_CREATE | DB_AUTO_COMMIT, 0600)) != 0)
        goto failed;
    *out = store;
    return 0;
failed:
    mneme_bdb_close(store);
    return error;
}

/* Sets `count` keys of `key_len` bytes each, one behind the other, in one transaction; removes them
 * if `value` is NULL. */
int mneme_bdb_write(mneme_bdb *store, const void *keys, size_t key_len, size_t count,
                    const void *value, size_t value_len) {
    DB_TXN *txn;
    int error = store->env->txn_begin(store->env, NULL, &txn, 0);
    if (error != 0)
        return error;
    for (size_t i = 0; i < count && error == 0; i++) {
        DBT key = dbt((const char *)keys + i * key_len, key_len);
        if (value == NULL) {
            error = store->db->del(store->db, txn, &key, 0);
            if (error == DB_NOTFOUND)
                error = 0;
        } else {
            DBT data = dbt(value, value_len);
            error = store->db->put(store->db, txn, &key, &data, 0);
        }
    }
    if (error != 0) {
        (void)txn->abort(txn);
        return error;
    }
    if ((error = txn->commit(txn, 0)) != 0)
        return error;
    store->written += count * (key_len + value_len);
    if (store->written < CHECKPOINT)
        return 0;
    store->written = 0;
    return store->env->txn_checkpoint(store->env, 0, 0, 0);
}

/* Copies the value of a key, of `len` bytes; NOT_FOUND if there is none. */
int mneme_bdb_get(mneme_bdb *store, const void *key, size_t key_len, void *out, size_t len) {
    DBT wanted = dbt(key, key_len), found = dbt(out, 0);
    found.ulen = (u_int32_t)len;
    found.flags = DB_DBT_USERMEM;
    int error = store->db->get(store->db, NULL, &wanted, &found, 0);
    return error == DB_NOTFOUND ? NOT_FOUND : error;
}

/* Copies the values, of `len` bytes, of at most `count` keys from `key` on, one over the other, and
 * says how many these were. */
int mneme_bdb_scan(mneme_bdb *store, const void *key, size_t key_len, size_t count, void *out,
                   size_t len, size_t *found) {
    DBC *cursor;
    int error = store->db->cursor(store->db, NULL, &cursor, 0);
    if (error != 0)
        return error;
    DBT at = dbt(key, key_len), value = dbt(NULL, 0);
    for (*found = 0; *found < count; ++*found) {
        error = cursor->get(cursor, &at, &value, *found == 0 ? DB_SET_RANGE : DB_NEXT);
        if (error != 0)
            break;
        if (value.size != len) {
            error = EINVAL;
            break;
        }
        memcpy(out, value.data, len);
    }
    (void)cursor->close(cursor);
    return error == DB_NOTFOUND ? 0 : error;
}
