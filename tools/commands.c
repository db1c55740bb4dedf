// The one table of commands; help, parsing and suggestions come from it.
#include "commands.h"

#include "reef_edit_distance.h"

#include <stdlib.h>
#include <string.h>

#define ANY (-1)

// name, arguments, how many of them, what else it takes, one line of help
static const cli_command COMMANDS[] = {
    {"init", "", 0, 0, CLI_POOL | CLI_CONFIG | CLI_CHANGES, "make a new pool", &init_manual,
     cmd_init},
    {"run", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_RUNS,
     "run the daemon that trains a pool, in the foreground", &run_manual, cmd_run},
    {"train", "FILE...", 1, ANY, CLI_POOL | CLI_CHANGES | CLI_COMPUTES,
     "train on files and measure on the way what is learned and kept", &train_manual, cmd_train},
    {"status", "", 0, 0, CLI_POOL | CLI_DAEMON, "what a pool holds and what its daemon is doing",
     &status_manual, cmd_status},
    {"top", "", 0, 0, CLI_POOL | CLI_DAEMON, "a live view of a daemon and its pool in the terminal",
     &top_manual, cmd_top},
    {"commit", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON,
     "let a daemon commit what it has trained", &commit_manual, cmd_commit},
    {"pause", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON,
     "let a daemon commit, and train no more for now", &pause_manual, cmd_pause},
    {"resume", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON, "let a paused daemon train on",
     &resume_manual, cmd_resume},
    {"drain", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON,
     "wait until a daemon has trained and committed what it has read", &drain_manual, cmd_drain},
    {"reload", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON,
     "let a daemon read its configuration again", &reload_manual, cmd_reload},
    {"ingest", "[FILE]", 0, 1, CLI_POOL | CLI_CHANGES | CLI_DAEMON,
     "push lines to the daemon, each taken once", &ingest_manual, cmd_ingest},
    {"stop", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON, "let a daemon finish, commit and end",
     &stop_manual, cmd_stop},
    {"seal", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES,
     "seal the open generation for good and open the next", &seal_manual, cmd_seal},
    {"grow", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES,
     "add experts to the open generation", &grow_manual, cmd_grow},
    {"branch", "GENERATION", 1, 1, CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES,
     "let the open generation begin as a copy of a sealed one", &branch_manual, cmd_branch},
    {"consolidate", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_COMPUTES | CLI_ASKS,
     "distil several sealed generations into one", &consolidate_manual, cmd_consolidate},
    {"freeze", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES,
     "freeze experts of the open generation", &freeze_manual, cmd_freeze},
    {"thaw", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES,
     "let frozen experts learn again", &thaw_manual, cmd_thaw},
    {"snapshot create", "NAME", 1, 1, CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES,
     "keep the present state under a name", &snapshot_create_manual, cmd_snapshot_create},
    {"snapshot list", "", 0, 0, CLI_POOL, "the snapshots of a pool", &snapshot_list_manual,
     cmd_snapshot_list},
    {"snapshot show", "NAME", 1, 1, CLI_POOL, "one snapshot in full", &snapshot_show_manual,
     cmd_snapshot_show},
    {"snapshot diff", "A [B]", 1, 2, CLI_POOL, "what changed between two states",
     &snapshot_diff_manual, cmd_snapshot_diff},
    {"snapshot restore", "NAME [OUT]", 1, 2, CLI_POOL | CLI_CHANGES | CLI_ASKS,
     "a new pool, or this one, as it was in a snapshot", &snapshot_restore_manual,
     cmd_snapshot_restore},
    {"snapshot remove", "NAME...", 1, ANY,
     CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES | CLI_ASKS, "remove snapshots",
     &snapshot_remove_manual, cmd_snapshot_remove},
    {"snapshot prune", "", 0, 0, CLI_POOL | CLI_CHANGES | CLI_DAEMON | CLI_COMPUTES | CLI_ASKS,
     "remove all snapshots but the newest", &snapshot_prune_manual, cmd_snapshot_prune},
    {"export pool", "DIRECTORY", 1, 1, CLI_POOL | CLI_CHANGES,
     "a compact copy of a pool, on its own", &export_pool_manual, cmd_export_pool},
    {"export generation", "G FILE", 2, 2, CLI_POOL | CLI_CHANGES, "one sealed generation as a file",
     &export_generation_manual, cmd_export_generation},
    {"export model", "FILE", 1, 1, CLI_POOL | CLI_CHANGES,
     "a state of a pool as one file of tensors", &export_model_manual, cmd_export_model},
    {"import", "FILE", 1, 1, CLI_POOL | CLI_CHANGES | CLI_COMPUTES,
     "take in a generation of a pool with the same backbone", &import_manual, cmd_import},
    {"eval", "FILE...", 1, ANY, CLI_POOL | CLI_COMPUTES,
     "loss on files, now or as of any earlier state", &eval_manual, cmd_eval},
    {"predict", "VECTORS", 1, 1, CLI_POOL | CLI_COMPUTES, "the class of each vector",
     &predict_manual, cmd_predict},
    {"score", "FILE", 1, 1, CLI_POOL | CLI_COMPUTES, "how surprising each line of a text is",
     &score_manual, cmd_score},
    {"generate", "", 0, 0, CLI_POOL | CLI_COMPUTES, "let the model continue a text",
     &generate_manual, cmd_generate},
    {"generations", "", 0, 0, CLI_POOL, "the generations of a pool", &generations_manual,
     cmd_generations},
    {"experts", "", 0, 0, CLI_POOL | CLI_COMPUTES,
     "single experts: uses, norms, and what one of them answers to", &experts_manual, cmd_experts},
    {"usage", "", 0, 0, CLI_POOL,
     "how evenly the experts of a generation are used, always or in a range of time", &usage_manual,
     cmd_usage},
    {"compact", "", 0, 0, CLI_POOL | CLI_CHANGES, "merge usage over time into coarser windows now",
     &compact_manual, cmd_compact},
    {"timeline", "", 0, 0, CLI_POOL, "what happened, and where in the stream", &timeline_manual,
     cmd_timeline},
    {"verify", "", 0, 0, CLI_POOL, "check every byte of a pool", &verify_manual, cmd_verify},
    {"plot loss", "", 0, 0, CLI_POOL, "loss over the stream, in the terminal or as SVG",
     &plot_loss_manual, cmd_plot_loss},
    {"plot forgetting", "", 0, 0, CLI_POOL | CLI_COMPUTES,
     "what each domain costs in every state, in the terminal or as SVG", &plot_forgetting_manual,
     cmd_plot_forgetting},
    {"plot usage", "", 0, 0, CLI_POOL, "how evenly experts are used, in the terminal or as SVG",
     &plot_usage_manual, cmd_plot_usage},
    {"plot growth", "", 0, 0, CLI_POOL, "experts along the stream, in the terminal or as SVG",
     &plot_growth_manual, cmd_plot_growth},
    {"report", "", 0, 0, CLI_POOL | CLI_COMPUTES,
     "what was learned, kept and forgotten, domain by domain", &report_manual, cmd_report},
    {"experiment isoflop", "CONFIG.ini", 1, 1, CLI_COMPUTES,
     "perplexity over parameters, at equal FLOPs", &experiment_isoflop_manual,
     cmd_experiment_isoflop},
    {"experiment experts", "CONFIG.ini", 1, 1, CLI_COMPUTES,
     "perplexity over the number of experts", &experiment_experts_manual, cmd_experiment_experts},
    {"experiment active", "CONFIG.ini", 1, 1, CLI_COMPUTES,
     "perplexity over heads and active experts", &experiment_active_manual, cmd_experiment_active},
    {"experiment batchnorm", "CONFIG.ini", 1, 1, CLI_COMPUTES,
     "queries with and without batch norm", &experiment_batchnorm_manual, cmd_experiment_batchnorm},
    {"experiment datasets", "CONFIG.ini", 1, 1, CLI_COMPUTES,
     "perplexity of the best models on more texts", &experiment_datasets_manual,
     cmd_experiment_datasets},
    {"bench step", "", 0, 0, CLI_CONFIG | CLI_THREADS,
     "how fast this machine trains and where the time goes", &bench_step_manual, cmd_bench_step},
    {"bench readers", "", 0, 0, CLI_CONFIG | CLI_THREADS,
     "whether training and evaluation make each other wait", &bench_readers_manual,
     cmd_bench_readers},
    {"bench peer", "", 0, 0, CLI_THREADS,
     "one PEER layer against what the machine allows, and against a rival", &bench_peer_manual,
     cmd_bench_peer},
    {"bench scale", "", 0, 0, CLI_COMPUTES, "the time of a token as the number of experts grows",
     &bench_scale_manual, cmd_bench_scale},
    {"bench store", "", 0, 0, 0, "what commits, snapshots and readers cost, beside the disk",
     &bench_store_manual, cmd_bench_store},
    {"bench usage", "", 0, 0, 0, "a simulated year of usage: its size, and whether sums are exact",
     &bench_usage_manual, cmd_bench_usage},
    {"config show", "[-- REEFD OPTIONS]", 0, ANY, 0,
     "every setting of reefd, and where its value comes from", &config_show_manual,
     cmd_config_show},
    {"config check", "FILE", 1, 1, 0,
     "what is wrong in a configuration file of reefd, line by line", &config_check_manual,
     cmd_config_check},
    {"completion", "bash|zsh|fish", 1, 1, 0, "a script that completes command lines in a shell",
     &completion_manual, cmd_completion},
    {"version", "", 0, 0, 0, "versions of the program and of the pool format", &version_manual,
     cmd_version},
    {"help", "[COMMAND]", 0, 2, 0, "explain a command, or list all of them", &help_manual,
     cmd_help},
};

#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

const cli_command *cli_commands(size_t *count) {
    *count = COMMAND_COUNT;
    return COMMANDS;
}

const cli_command *cli_command_find(const char *name) {
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(COMMANDS[i].name, name) == 0) return &COMMANDS[i];
    return NULL;
}

// What was typed is near to a name, or begins one: the nearer one stays in *guess.
static void consider(const char *typed, const char *name, size_t *nearest, char **guess) {
    size_t distance = reef_word_distance(typed, name);
    if (distance >= *nearest) return;
    *nearest = distance;
    free(*guess);
    *guess = cli_format("%s", name);
}

// "snapshot" of "snapshot list"; what is one word stays.
static char *first_word(const char *name) {
    return cli_format("%.*s", (int)strcspn(name, " "), name);
}

char *cli_command_guess(const char *name) {
    char *guess = NULL;
    size_t nearest = strlen(name) / 3 + 1; // what differs in more than a third is no help
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        char *first = first_word(COMMANDS[i].name);
        consider(name, COMMANDS[i].name, &nearest, &guess);
        consider(name, first, &nearest, &guess);
        free(first);
    }
    for (size_t i = 0; !guess && strlen(name) > 1 && i < COMMAND_COUNT; i++)
        if (strncmp(COMMANDS[i].name, name, strlen(name)) == 0)
            guess = first_word(COMMANDS[i].name);
    return guess;
}
