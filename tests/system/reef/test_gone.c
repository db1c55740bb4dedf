// What is gone: each name of the table is answered in one line that says what does it now, and none
// is still there.
#include "cli.h"
#include "cli_format.h"
#include "commands.h"
#include "reef_gone.h"
#include "reef_settings.h"
#include "test.h"

static bool command_has(const reef_cli_command *command, const char *option) {
    reef_cli_options list;
    reef_cli_options_init(&list, command);
    bool has = false;
    for (size_t i = 0; i < list.count; i++) has |= strcmp(list.options[i].name, option) == 0;
    reef_cli_options_release(&list);
    return has;
}

static bool reefd_has(const char *option) {
    size_t count;
    const reef_option_text *texts = reef_option_texts(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(texts[i].name, option) == 0) return true;
    return false;
}

// `command` is empty where the option is gone everywhere.
static bool is_there(const char *command, const char *option) {
    size_t count;
    const reef_cli_command *all = reef_cli_commands(&count);
    if (strcmp(command, "reefd") == 0) return reefd_has(option);
    for (size_t i = 0; i < count; i++)
        if ((!*command || strcmp(all[i].name, command) == 0) && command_has(&all[i], option))
            return true;
    return !*command && (reefd_has(option) || reef_cli_config_field(option) != NULL);
}

// The arguments of `reef` that name it.
static void expect_refusal(const char *command, const char *option, const reef_gone *gone) {
    reef_error err = {0};
    const char *now = gone->now != NULL ? gone->now : "nothing does it now";
    if (option != NULL) {
        bool of_reef = *command && strcmp(command, "reefd") != 0;
        const reef_cli_command *row = reef_cli_command_find(of_reef ? command : "status");
        char *typed = reef_cli_format("--%s=1", option), *argv[] = {"", typed};
        reef_cli_call cli = {0};
        bool help;
        if (row == NULL) fail_msg("%s: its command is gone too, which is enough", gone->name);
        if (strcmp(command, "reefd") == 0)
            assert_true(reef_gone_report("reefd", option, &err));
        else
            assert_int_equal(reef_cli_parse(&cli, row, 2, argv, &help, &err), REEF_ERR_INVALID);
        reef_cli_release(&cli);
        free(typed);
    } else {
        char *second = strchr(command, ' '), *first = reef_cli_format("%s", command);
        first[strcspn(first, " ")] = '\0';
        assert_int_equal(reef_cli_command_unknown(first, second != NULL ? second + 1 : NULL, &err),
                         REEF_ERR_INVALID);
        free(first);
    }
    if (strstr(err.message, now) == NULL || strstr(err.message, gone->name) == NULL)
        fail_msg("%s: answered with: %s", gone->name, err.message);
}

PLAIN_TEST(what_is_gone_is_answered_and_not_there) {
    size_t count;
    const reef_gone *all = reef_gone_all(&count);
    reef_cmd_install();
    for (size_t i = 0; i < count; i++) {
        char *command = reef_cli_format("%s", all[i].name), *option = strstr(command, "--");
        if (i > 0 && strcmp(all[i - 1].name, all[i].name) >= 0)
            fail_msg("%s stands before %s", all[i - 1].name, all[i].name);
        if (option != NULL) {
            option[option > command ? -1 : 0] = '\0'; // the blank before it
            option += 2;
            if (is_there(command, option)) fail_msg("%s is still there", all[i].name);
        } else if (reef_cli_command_find(command) != NULL || reef_cli_group_has(command)) {
            fail_msg("%s is still there", all[i].name);
        }
        expect_refusal(command, option, &all[i]);
        free(command);
    }
}

// As they are typed: '_' for '-' in files and in Python, a group by its first word.
PLAIN_TEST(names_are_found_as_they_are_typed) {
    reef_error err;
    assert_true(reef_gone_report("compact", NULL, &err));
    assert_string_equal(err.message, "'compact' is gone: reefd merges windows of usage by itself");
    assert_true(reef_gone_report("compact everything", NULL, NULL));
    assert_false(reef_gone_report("compactly", NULL, NULL));
    assert_false(reef_gone_report("status", NULL, NULL));
    assert_false(reef_gone_report(NULL, "d_model", NULL));
    assert_false(reef_gone_report("reefd", "", NULL));
}

// What version 0.1 of the development had, as a user typed it.
static const char COMMANDS[] =
    "init,run,train,status,top,commit,pause,resume,drain,reload,ingest,stop,seal,grow,branch,"
    "consolidate,freeze,thaw,snapshot create,snapshot list,snapshot show,snapshot diff,"
    "snapshot restore,snapshot remove,snapshot prune,export pool,export generation,"
    "export model,shards,compress,expand,import,eval,predict,score,generate,kind list,"
    "kind show,kind name,kind recover,kind near,kind merge,prune,generations,experts,usage,"
    "compact,timeline,verify,plot loss,plot forgetting,plot usage,plot growth,report,"
    "experiment isoflop,experiment experts,experiment active,experiment batchnorm,"
    "experiment datasets,bench step,bench readers,bench ranks,bench peer,bench scale,"
    "bench store,bench usage,bench context,bench kinds,config show,config check,completion,"
    "version,help";
static const char FIELDS[] =
    "adapt-ffw,adapt-position,adapt-whole,adapters,asking,attention-heads,average,batch,"
    "batch-norm,beta1,beta2,bn-momentum,boundaries,boundary-bytes,boundary-mark,branch-new,"
    "capacity-share,capacity-uses,clip,context,context-memory,copy-experts,cut-windows,d-ffw,"
    "d-key,d-model,decay,draw-from,drift-bits,drift-confirm,drift-hold,drift-share,"
    "drift-warmup,drift-window,drift-z,epsilon,ewc-weight,expert,expert-rate,experts-max,ffw,"
    "fire-max,gate,gate-decay,gate-negatives,growth,heads,image-columns,inputs,kinds-max,"
    "layers,leak-max,learning-rate,lwf-temperature,lwf-weight,memory,model,moe-capacity,"
    "moe-experts,net-share,previous-bytes,recognition,recycle-after,rehearse,replay-share,"
    "reservoir-bytes,reservoir-window,retain-weight,return-bytes,ridge,score,seal-dtype,seed,"
    "side,side-new,size-new,sparse-slots,strategy,subkeys,subkeys-new,topk,vector-gate,vocab,"
    "warmup,weigh-older";
static const char SETTINGS[] =
    "pool,source,threads,memory,open-max,pool-max,snapshot-every,keep,commit-steps,"
    "commit-seconds,patience,rank-deadline,new-shards,turn,streams,join-every,commit-retries,"
    "scrub-rate,journal,socket,http,http-token,stay,json-log,quiet";

static bool command_is_known(const char *name) {
    return reef_cli_command_find(name) != NULL || reef_gone_report(name, NULL, NULL);
}

static bool field_is_known(const char *name) {
    return reef_cli_config_field(name) != NULL || reef_gone_report("init", name, NULL);
}

static bool setting_is_known(const char *name) {
    return reefd_has(name) || reef_gone_report("reefd", name, NULL);
}

static void all_are_known(const char *names, bool (*is_known)(const char *name)) {
    char *rest = keep(reef_cli_format("%s", names));
    for (char *name; (name = strtok_r(rest, ",", &rest)) != NULL;)
        if (!is_known(name)) fail_msg("%s went without a word", name);
}

PLAIN_TEST(nothing_went_without_a_word) {
    all_are_known(COMMANDS, command_is_known);
    all_are_known(FIELDS, field_is_known);
    all_are_known(SETTINGS, setting_is_known);
}

RUN_TESTS
