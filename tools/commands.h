// The one table of commands, from which come help, parsing and suggestions; in the order of help.
#ifndef REEF_COMMANDS_H
#define REEF_COMMANDS_H

#include "cli.h"
#include "cli_pool.h"

#define CLI_ANY (-1) // number of arguments

// What changes a pool, through its daemon where one runs; and computes with its model for that.
#define CLI_ASKS (CLI_POOL | CLI_CHANGES | CLI_DAEMON)
#define CLI_TRAINS (CLI_ASKS | CLI_COMPUTES)

// name, function, arguments, how many of them, what else it takes, one line of help

#define CLI_EVERY_DAY(X)                                                                           \
    X("init", init, "", 0, 0, CLI_POOL | CLI_CONFIG | CLI_CHANGES, "make a new pool")              \
    X("train", train, "FILE...", 1, CLI_ANY, CLI_POOL | CLI_CHANGES | CLI_COMPUTES,                \
      "train on files as one stream")                                                              \
    X("status", status, "", 0, 0, CLI_POOL | CLI_DAEMON,                                           \
      "what a pool holds and what its daemon is doing")                                            \
    X("top", top, "", 0, 0, CLI_POOL | CLI_DAEMON,                                                 \
      "a live view of a daemon and its pool in the terminal")                                      \
    X("ingest", ingest, "[FILE]", 0, 1, CLI_ASKS, "push lines to the daemon, each taken once")     \
    X("eval", eval, "FILE...", 1, CLI_ANY, CLI_POOL | CLI_COMPUTES,                                \
      "loss on files, now or as of a state that was kept")                                         \
    X("score", score, "FILE", 1, 1, CLI_POOL | CLI_COMPUTES,                                       \
      "how surprising each line of a text is")                                                     \
    X("watch", watch, "[PATH...]", 0, CLI_ANY, 0, "what is new in logs, as incidents")             \
    X("incident", incident, "[list|show|normal|mute|fault [ID]|budget|gap|quiet|forget VALUE]", 0, \
      2, CLI_TRAINS, "what rang in the logs that a pool watches, and what you say of it")          \
    X("generate", generate, "", 0, 0, CLI_POOL | CLI_COMPUTES, "let the model continue a text")    \
    X("plot loss", plot_loss, "", 0, 0, CLI_POOL, "loss over the stream")                          \
    X("timeline", timeline, "", 0, 0, CLI_POOL, "what happened, and where in the stream")          \
    X("commit", commit, "", 0, 0, CLI_ASKS, "commit what a daemon has trained")                    \
    X("pause", pause, "", 0, 0, CLI_ASKS, "pause training after a commit")                         \
    X("resume", resume, "", 0, 0, CLI_ASKS, "resume training after a pause")                       \
    X("drain", drain, "", 0, 0, CLI_ASKS,                                                          \
      "wait until a daemon has trained and committed what it has read")                            \
    X("reload", reload, "", 0, 0, CLI_ASKS, "reload the configuration of a daemon")                \
    X("stop", stop, "", 0, 0, CLI_ASKS, "end a daemon after a last commit")                        \
    X("verify", verify, "", 0, 0, CLI_POOL, "check every byte of a pool")                          \
    X("version", version, "", 0, 0, 0, "versions of the program and of the pool format")           \
    X("help", help, "[COMMAND]", 0, 2, 0, "explain a command, or list all of them")

#define CLI_STATES(X)                                                                              \
    X("seal", seal, "", 0, 0, CLI_TRAINS, "seal the open generation for good and open the next")   \
    X("generations", generations, "", 0, 0, CLI_POOL, "the generations of a pool")                 \
    X("prune", prune, "", 0, 0, CLI_TRAINS | CLI_CONFIRMS,                                         \
      "give up the states as of older generations")                                                \
    X("snapshot create", snapshot_create, "NAME", 1, 1, CLI_TRAINS,                                \
      "keep the present state under a name")                                                       \
    X("snapshot list", snapshot_list, "", 0, 0, CLI_POOL, "the snapshots of a pool")               \
    X("snapshot restore", snapshot_restore, "NAME [OUT]", 1, 2,                                    \
      CLI_POOL | CLI_CHANGES | CLI_CONFIRMS, "a new pool, or this one, as it was in a snapshot")   \
    X("snapshot remove", snapshot_remove, "NAME...", 1, CLI_ANY, CLI_TRAINS | CLI_CONFIRMS,        \
      "remove snapshots")                                                                          \
    X("snapshot prune", snapshot_prune, "", 0, 0, CLI_TRAINS | CLI_CONFIRMS,                       \
      "remove all snapshots but the newest")

#define CLI_KINDS(X)                                                                               \
    X("kind list", kind_list, "[KIND]", 0, 1, CLI_POOL,                                            \
      "the kinds of text that a pool has learned")                                                 \
    X("kind name", kind_name, "KIND [NAME]", 1, 2, CLI_TRAINS, "give a kind a name")               \
    X("kind recover", kind_recover, "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_COMPUTES,               \
      "let damaged kinds go on from their newest whole state")

#define CLI_EXPERTS(X)                                                                             \
    X("experts", experts, "", 0, 0, CLI_POOL,                                                      \
      "single experts: how often they are used, and their norms")                                  \
    X("usage", usage, "", 0, 0, CLI_POOL,                                                          \
      "how evenly the experts of a generation are used, always or in a range of time")             \
    X("freeze", freeze, "", 0, 0, CLI_TRAINS | CLI_CONFIRMS,                                       \
      "freeze experts of the open generation")                                                     \
    X("thaw", thaw, "", 0, 0, CLI_TRAINS, "train frozen experts again")                            \
    X("grow", grow, "", 0, 0, CLI_TRAINS, "add experts to the open generation")

#define CLI_FILES(X)                                                                               \
    X("compress", compress, "[FILE]", 0, 1, CLI_POOL | CLI_CHANGES | CLI_THREADS,                  \
      "code a file by what a pool has learned, as of a state")                                     \
    X("expand", expand, "[ARCHIVE]", 0, 1, CLI_POOL | CLI_CHANGES | CLI_THREADS,                   \
      "the file of an archive, or a range of it")                                                  \
    X("export pool", export_pool, "DIRECTORY", 1, 1, CLI_POOL | CLI_CHANGES,                       \
      "a compact copy of a pool, on its own")                                                      \
    X("export model", export_model, "FILE", 1, 1, CLI_POOL | CLI_CHANGES,                          \
      "a state of a pool as one file of tensors")                                                  \
    X("import", import, "FROM", 1, 1, CLI_POOL | CLI_CHANGES | CLI_COMPUTES,                       \
      "take in generations of a pool with the same backbone")                                      \
    X("shards", shards, "FROM... NEW", 2, CLI_ANY, CLI_CHANGES,                                    \
      "divide a pool over ranks, or bring it together")

#define CLI_COMMANDS(X) CLI_EVERY_DAY(X) CLI_STATES(X) CLI_KINDS(X) CLI_EXPERTS(X) CLI_FILES(X)

#define CLI_DECLARE(name, function, ...)                                                           \
    REEF_MUST_CHECK reef_status reef_cmd_##function(reef_cli_call *cli, reef_error *err);          \
    extern const reef_cli_manual reef_##function##_manual;
CLI_COMMANDS(CLI_DECLARE)
#undef CLI_DECLARE

/**
 * The document of `reef status --json`, the caller's: of the daemon if one runs (*daemon), else of
 * the last commit.
 */
REEF_MUST_CHECK reef_status reef_status_read(const reef_cli_call *cli,
                                             json_t **result,
                                             bool *daemon,
                                             reef_error *err);

/**
 * Which kind is being learned, by a status, on the heap; NULL where there is one alone, without a
 * name, or none.
 */
char *reef_kind_words(const json_t *status);
/** One line about the member `ranks` of a status, on the heap; NULL where there is none. */
char *reef_ranks_words(const json_t *status);
/** The same about the member `joins`, of a rank that learns apart. */
char *reef_joins_words(const json_t *status);

/** Install the table of commands: the first thing that the program does. */
void reef_cmd_install(void);

#endif
