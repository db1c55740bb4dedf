// Named points at which a test build dies, so that what a crash there leaves can be looked at.
//
// REEF_FAIL_POINT=NAME in the environment kills the process with SIGKILL when it gets to the point,
// and REEF_FAIL_POINT=NAME:n when it does so for the n-th time. Only in builds with the CMake
// option REEF_FAIL_POINTS: in all others nothing is left of it, neither calls nor names. Not
// installed.
#ifndef REEF_FAIL_POINT_H
#define REEF_FAIL_POINT_H

// name, as the environment calls it. tests/README.md says what has happened there and what has not.
#define REEF_FAIL_POINT_LIST(X)                                                                    \
    X(COMMIT_BEGUN, "commit.begun")                                                                \
    X(COMMIT_MODEL, "commit.model")                                                                \
    X(COMMIT_STATE, "commit.state")                                                                \
    X(COMMIT_BEFORE_ROOT, "commit.before_root")                                                    \
    X(COMMIT_BEFORE_RECORD, "commit.before_record")                                                \
    X(COMMIT_BEFORE_SYNC, "commit.before_sync")                                                    \
    X(COMMIT_AFTER_SYNC, "commit.after_sync")                                                      \
    X(SNAPSHOT_BEGUN, "snapshot.begun")                                                            \
    X(SNAPSHOT_COPIED, "snapshot.copied")                                                          \
    X(SNAPSHOT_STORED, "snapshot.stored")                                                          \
    X(SNAPSHOT_REMOVED, "snapshot.removed")                                                        \
    X(COMPACT_GATHERED, "compact.gathered")                                                        \
    X(COMPACT_MERGED, "compact.merged")                                                            \
    X(COMPACT_REMOVED, "compact.removed")                                                          \
    X(IMPORT_READ, "import.read")                                                                  \
    X(IMPORT_JOINED, "import.joined")                                                              \
    X(IMPORT_CLEARED, "import.cleared")                                                            \
    X(MAKE_BEGUN, "make.begun")                                                                    \
    X(MAKE_FILLED, "make.filled")                                                                  \
    X(MAKE_MOVED, "make.moved")                                                                    \
    X(MAKE_CLEANED, "make.cleaned")                                                                \
    X(COPY_WRITTEN, "copy.written")                                                                \
    X(SHARD_MADE, "shard.made")                                                                    \
    X(SHARDS_MADE, "shards.made")                                                                  \
    X(COPY_COMPARED, "copy.compared")                                                              \
    X(RESTORE_KEPT, "restore.kept")                                                                \
    X(RESTORE_REMOVED, "restore.removed")                                                          \
    X(RESTORE_COPIED, "restore.copied")                                                            \
    X(RESTORE_REPORTED, "restore.told")                                                            \
    X(JOURNAL_WRITTEN, "journal.written")                                                          \
    X(JOIN_SEALED, "join.sealed")                                                                  \
    X(JOIN_PACKED, "join.packed")                                                                  \
    X(JOIN_EXCHANGED, "join.exchanged")                                                            \
    X(JOIN_ITEM, "join.item")                                                                      \
    X(JOIN_FINISHED, "join.finished")

#ifdef REEF_FAIL_POINTS
typedef enum reef_fail_point {
#define REEF_FAIL_POINT_ENUM(upper, name) REEF_FAIL_##upper,
    REEF_FAIL_POINT_LIST(REEF_FAIL_POINT_ENUM)
#undef REEF_FAIL_POINT_ENUM
} reef_fail_point;

/** Die here, if the environment says so. Threads: any. */
void reef_fail_point_reach(reef_fail_point point);
#define REEF_FAIL_POINT(upper) reef_fail_point_reach(REEF_FAIL_##upper)
#else
#define REEF_FAIL_POINT(upper) ((void)0)
#endif

#endif
