// Snapshots of a lifelong pool, and going back to them.
#ifndef LIFELONG_RESTORE_H
#define LIFELONG_RESTORE_H

#include "lifelong.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"

static inline reef_snapshot take(lifelong *f, const char *name) {
    reef_error err;
    reef_snapshot snapshot;
    ok(reef_trainer_snapshot(f->trainer, name, &snapshot, &err), &err);
    return snapshot;
}

static inline void go_back(lifelong *f, const char *name) {
    reef_error err;
    reef_restoration done;
    reef_trainer_close(f->trainer);
    f->trainer = NULL;
    ok(reef_pool_restore_in_place(f->store, name, false, &done, &err), &err);
    close_pool(f);
    open_pool(f, 1);
}

static inline void is_sound(reef_store *store) {
    reef_error err;
    reef_check_report report;
    ok(reef_store_check(store, NULL, NULL, &report, &err), &err);
    assert_int_equal(report.damaged, 0);
}

#endif
