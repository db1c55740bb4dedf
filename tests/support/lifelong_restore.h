// Snapshots of a lifelong pool, and going back to them.
#ifndef LIFELONG_RESTORE_H
#define LIFELONG_RESTORE_H

#include "lifelong.h"
#include "reef_snapshot.h"

static inline reef_snapshot take(lifelong *f, const char *name) {
    reef_snapshot snapshot;
    must(reef_trainer_snapshot(f->trainer, name, &snapshot, &why));
    return snapshot;
}

static inline void go_back(lifelong *f, const char *name) {
    reef_restoration done;
    close_trainer(f);
    must(reef_pool_restore_in_place(f->store, name, false, &done, &why));
    open_again(f, 1);
}

#endif
