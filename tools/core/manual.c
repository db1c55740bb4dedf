// See manual.h. The language is that of man(7), as far as groff and mandoc agree on it.
#include "manual.h"

#include "cli.h"
#include "reef_settings.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DATE_BYTES 16
#define TITLE_BYTES 64
#define EXIT_CODE_LAST 78 // of sysexits(3)
#define LINE_COLUMNS 50

// ---- text ---------------------------------------------------------------------------------------

// Writes one character in roff. `start` is the beginning of a line, where a dot or a quote would be
// a request.
static void put_character(FILE *out, char c, bool start) {
    if (start && (c == '.' || c == '\'')) fputs("\\&", out);
    if (c == '\\')
        fputs("\\e", out);
    else if (c == '-')
        // A minus as it is typed, not a hyphen.
        fputs("\\-", out);
    else if (c == '~')
        fputs("\\(ti", out);
    else if (c == '^')
        fputs("\\(ha", out);
    else
        fputc(c, out);
}

static void put_text(FILE *out, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) put_character(out, text[i], i == 0);
}

// Writes paragraphs: text in backticks is bold, an empty line begins a new one, an indented line
// stands alone.
static void put_paragraphs(FILE *out, const char *text) {
    bool start = true, bold = false;
    size_t column = 0;
    for (const char *c = text; *c; c++, column++) {
        if (*c == '`') {
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", out);
        } else if (*c == '\n' && c[1] == '\n') {
            fputs("\n.PP", out);
        } else if (*c == '\n' && c[1] == ' ') {
            // Indented lines are examples, so they are not filled.
            c += strspn(c + 1, " ");
            fputs("\n.br\n", out);
            // Lines are broken in the source too: pages are also read as files.
        } else if (*c == ' ' && column > LINE_COLUMNS && c[1] != ' ') {
            fputc('\n', out); // sources of the manual are read, too
            start = true;
            column = 0;
            continue;
        } else {
            put_character(out, *c, start);
        }
        start = *c == '\n';
        if (start) column = 0;
    }
    if (!start) fputc('\n', out);
}

// Lines as they stand. An indented one continues the one above it: blanks replace the prefix.
static void put_lines(FILE *out, const char *text, const char *before) {
    fputs(".nf\n", out);
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        fprintf(out, "%*s", (int)strlen(before), *text == ' ' ? "" : before);
        for (size_t i = 0; i < bytes; i++) put_character(out, text[i], i == 0 && !*before);
        fputc('\n', out);
        text += bytes;
        text += *text == '\n';
    }
    fputs(".fi\n", out);
}

static void put_section(FILE *out, const char *name) {
    fprintf(out, ".SH %s\n", name);
}

// `letter` may be '\0'.
static void put_option(
    FILE *out, char letter, const char *name, const char *value, const char *help) {
    fputs(".TP\n", out);
    if (letter != '\0') fprintf(out, "\\fB\\-%c\\fR, ", letter);
    fputs("\\fB\\-\\-", out);
    put_text(out, name, strlen(name));
    fputs("\\fR", out);
    if (value != NULL) {
        fputs(" \\fI", out);
        put_text(out, value, strlen(value));
        fputs("\\fR", out);
    }
    fputc('\n', out);
    put_paragraphs(out, help);
}

static void put_term(FILE *out, const char *term, const char *text) {
    fputs(".TP\n.B ", out);
    put_text(out, term, strlen(term));
    fputc('\n', out);
    put_paragraphs(out, text);
}

// ---- what every page has ------------------------------------------------------------------------

static void today(char out[DATE_BYTES]) {
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    time_t now = fixed != NULL && *fixed ? (time_t)strtoll(fixed, NULL, 10) : time(NULL);
    struct tm day;
    if (gmtime_r(&now, &day) == NULL || strftime(out, DATE_BYTES, "%Y-%m-%d", &day) == 0)
        out[0] = '\0';
}

// "snapshot create" is reef-snapshot-create; the empty name is reef.
static void page_name(const char *command, char out[TITLE_BYTES]) {
    snprintf(out, TITLE_BYTES, "reef%s%s", command[0] ? "-" : "", command);
    for (char *c = out; *c; c++)
        if (*c == ' ') *c = '-';
}

static void put_head(FILE *out, const char *name, int section, const char *summary) {
    char date[DATE_BYTES];
    today(date);
    fputs(".\\\" made of the table of commands; do not edit\n.TH ", out);
    for (const char *c = name; *c; c++) put_character(out, (char)toupper((unsigned char)*c), false);
    fprintf(out, " %d %s \"Reef %s\" \"Reef manual\"\n", section, date, REEF_VERSION_TEXT);
    put_section(out, "NAME");
    put_text(out, name, strlen(name));
    fputs(" \\- ", out);
    put_paragraphs(out, summary);
}

static const char *meaning(reef_status status) {
    // In a switch, so that the compiler finds a status without a text.
    switch (status) {
    case REEF_OK:
        return "done";
    case REEF_ERR_INVALID:
        return "usage: an option or an argument is wrong, or does not fit the pool";
    case REEF_ERR_NOT_FOUND:
        return "something that was named does not exist: "
               "a pool, a file, a generation, a snapshot, a daemon";
    case REEF_ERR_CORRUPT:
        return "the pool, or a file, is damaged, or of another version";
    case REEF_ERR_VERSION:
        // The exit code of damage, which has its line already.
        return NULL;
    case REEF_ERR_FULL:
        return "the disk is full";
    case REEF_ERR_BUSY:
        return "somebody else uses it: try again later";
    case REEF_ERR_NO_MEMORY:
        return "out of memory";
    case REEF_ERR_IO:
        return "reading or writing failed";
    }
    return NULL;
}

static void put_exit_codes(FILE *out) {
    // The statuses of the list, so that the page cannot miss one.
    static const reef_status ALL[] = {
#define ONE(name, text, code) name,
        REEF_STATUS_LIST(ONE)
#undef ONE
    };
    put_section(out, "EXIT STATUS");
    for (int code = 0; code <= EXIT_CODE_LAST; code++)
        // By code: two statuses share one.
        for (size_t i = 0; i < sizeof(ALL) / sizeof(ALL[0]); i++) {
            char text[12];
            if (reef_status_exit_code(ALL[i]) != code || meaning(ALL[i]) == NULL) continue;
            snprintf(text, sizeof(text), "%d", code);
            put_term(out, text, meaning(ALL[i]));
        }
}

static void put_reference(FILE *out, const char *command, int section, bool last) {
    char name[TITLE_BYTES];
    page_name(command, name);
    fputs(".BR ", out);
    put_text(out, name, strlen(name));
    fprintf(out, " (%d)%s\n", section, last ? "" : ",");
}

// ---- a command ----------------------------------------------------------------------------------

static void put_synopsis(FILE *out, const reef_cli_command *command) {
    put_section(out, "SYNOPSIS");
    fprintf(out, ".B reef %s\n", command->name);
    if (command->traits & CLI_POOL) fputs("[\\fIPOOL\\fR]\n", out);
    fputs("[\\fIOPTIONS\\fR]\n", out);
    if (!command->operands[0]) return;
    fputs("\\fI", out);
    put_text(out, command->operands, strlen(command->operands));
    fputs("\\fR\n", out);
}

static void put_options(FILE *out, const reef_cli_command *command) {
    reef_cli_options list;
    reef_cli_options_init(&list, command);
    put_section(out, "OPTIONS");
    for (size_t i = 0; i < list.count; i++) {
        const reef_cli_option *option = &list.options[i];
        // Fields of the configuration have a default, options of a command do not.
        const reef_config_field *field =
            command->traits & CLI_CONFIG ? reef_cli_config_field(option->name) : NULL;
        const char *standard = field != NULL ? reef_cli_default(command, field) : "";
        char *help = field != NULL ? reef_cli_format("%s (default: %s)", option->help,
                                                     standard[0] ? standard : "none")
                                   : reef_cli_format("%s", option->help);
        put_option(out, reef_cli_letter(option->name), option->name, option->value, help);
        free(help);
    }
    reef_cli_options_release(&list);
}

// Commands that begin with the same word.
static void put_relatives(FILE *out, const reef_cli_command *command) {
    size_t count, length = strcspn(command->name, " ");
    const reef_cli_command *commands = reef_cli_commands(&count);
    put_section(out, "SEE ALSO");
    for (size_t i = 0; i < count && command->name[length]; i++)
        if (&commands[i] != command && strncmp(commands[i].name, command->name, length + 1) == 0)
            put_reference(out, commands[i].name, 1, false);
    put_reference(out, "", 1, false);
    fputs(".BR reefd (8)\n", out);
}

static void put_command(FILE *out, const void *context) {
    const reef_cli_command *command = context;
    char name[TITLE_BYTES];
    // "snapshot create" is the page reef-snapshot-create.
    page_name(command->name, name);
    // In the order of man-pages(7).
    put_head(out, name, 1, command->summary);
    put_synopsis(out, command);
    put_section(out, "DESCRIPTION");
    put_paragraphs(out, command->manual->about);
    put_options(out, command);
    put_section(out, "EXAMPLES");
    put_lines(out, command->manual->example, "$ ");
    put_exit_codes(out);
    put_relatives(out, command);
}

// ---- reef ---------------------------------------------------------------------------------------

static void put_environment(FILE *out) {
    put_section(out, "ENVIRONMENT");
    put_term(out, "REEF_POOL", "the pool, where neither an argument nor `--pool` names one");
    put_term(out, "REEF_ISA",
             "the kernels: scalar, avx2 or avx512; default the best that this CPU runs");
    put_term(out, "NO_COLOR", "when it is set and not empty, nothing has colours");
}

static void put_tool(FILE *out, const void *context) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    (void)context;
    // The page of the tool lists the commands; each has its own page.
    put_head(out, "reef", 1, "a lifelong-learning expert store");
    put_section(out, "SYNOPSIS");
    fputs(".B reef\n\\fICOMMAND\\fR\n[\\fIPOOL\\fR]\n[\\fIOPTIONS\\fR]\n[\\fIARGUMENTS\\fR]\n",
          out);
    put_section(out, "DESCRIPTION");
    put_paragraphs(
        out,
        "Everything about a pool that is not streaming; `reefd` is the daemon that trains one. A "
        "pool is a directory: the first argument, or `--pool`, or REEF_POOL. Where a daemon runs "
        "on the pool, what changes it goes through the daemon's socket; otherwise the pool is "
        "opened. `--verbose` says in its first line which.\n\n"
        "Results go to standard output, messages and progress to standard error. With `--json` "
        "the answer is one JSON document (with `score --follow` and `top` one a line), also "
        "after a mistake: then it has the member error. Snapshots are named by their name, its "
        "beginning, or four or more digits of their root.");
    put_section(out, "COMMANDS");
    for (size_t i = 0; i < count; i++) {
        char name[TITLE_BYTES];
        page_name(commands[i].name, name);
        // A reference in bold, as man-pages(7) asks for.
        fputs(".TP\n.BR ", out);
        put_text(out, name, strlen(name));
        fputs(" (1)\n", out);
        put_paragraphs(out, commands[i].summary);
    }
    put_environment(out);
    put_exit_codes(out);
    put_section(out, "EXAMPLES");
    put_lines(out,
              "reef init reef.pool\n"
              "reefd --pool reef.pool --source file:corpus.txt\n"
              "reef status reef.pool",
              "$ ");
    put_section(out, "SEE ALSO");
    fputs(".BR reefd (8)\n", out);
}

// ---- reefd --------------------------------------------------------------------------------------

static void put_daemon(FILE *out, const void *context) {
    size_t count;
    const reef_option_text *options = reef_option_texts(&count);
    // The texts are the daemon's own, so that page and --help agree.
    const reef_options_manual *m = &REEF_OPTIONS_MANUAL;
    (void)context;
    put_head(out, "reefd", 8, "train a pool of experts on a stream");
    put_section(out, "SYNOPSIS");
    put_paragraphs(out, m->usage);
    put_section(out, "DESCRIPTION");
    put_paragraphs(out, m->about);
    put_section(out, "SOURCES");
    put_lines(out, m->sources, "");
    put_section(out, "OPTIONS");
    for (size_t i = 0; i < count; i++)
        // In the order of the reference page.
        put_option(out, '\0', options[i].name, options[i].value, options[i].help);
    fputs(".PP\n", out);
    put_paragraphs(out, m->layers);
    put_section(out, "SIGNALS");
    put_paragraphs(out, m->signals);
    put_exit_codes(out);
    put_section(out, "EXAMPLES");
    put_lines(out, m->example, "$ ");
    put_section(out, "SEE ALSO");
    put_reference(out, "", 1, false);
    put_reference(out, "status", 1, false);
    put_reference(out, "ingest", 1, true);
}

// ---- files --------------------------------------------------------------------------------------

static reef_status write_page(const char *directory,
                              const char *name,
                              int section,
                              void (*put_page)(FILE *out, const void *context),
                              const void *context,
                              reef_error *err) {
    char *path = reef_cli_format("%s/%s.%d", directory, name, section);
    FILE *out = fopen(path, "w");
    bool failed = out == NULL;
    if (out != NULL) {
        // ferror() also catches a disk that is full.
        put_page(out, context);
        failed = ferror(out) != 0;
        failed |= fclose(out) != 0;
    }
    // A missing directory is the user's mistake, all else is the machine's.
    reef_status status = failed ? reef_fail(err, errno == ENOENT ? REEF_ERR_NOT_FOUND : REEF_ERR_IO,
                                            "cannot write %.160s: %s", path, strerror(errno))
                                : REEF_OK;
    free(path);
    return status;
}

reef_status reef_manual_write(const char *directory, size_t *count, reef_error *err) {
    size_t command_count;
    const reef_cli_command *commands = reef_cli_commands(&command_count);
    reef_status status = write_page(directory, "reef", 1, put_tool, NULL, err);
    if (status == REEF_OK) status = write_page(directory, "reefd", 8, put_daemon, NULL, err);
    for (size_t i = 0; status == REEF_OK && i < command_count; i++) {
        char name[TITLE_BYTES];
        page_name(commands[i].name, name);
        status = write_page(directory, name, 1, put_command, &commands[i], err);
    }
    // The tool's page and the daemon's are counted too.
    *count = command_count + 2;
    return status;
}
