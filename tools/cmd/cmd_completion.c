// reef completion: a script that lets a shell complete command lines of reef and reefd.
#include "completion.h"

#include "commands.h"

#include <stdlib.h>

const reef_cli_manual reef_completion_manual = {
    .about = "Prints the script. `cmake --install` and the packages "
             "put it where the shells look for it; without them\n"
             "a shell reads it as in the examples. For zsh: "
             "a file _reef in a directory of $fpath; for fish: reef.fish\n"
             "and reefd.fish in ~/.config/fish/completions.",
    .options = NULL,
    .example = "reef completion bash > reef.bash && . ./reef.bash\n"
               "reef completion zsh > _reef\n"
               "reef completion fish > reef.fish",
};

// The script as one JSON text, for programs that install it.
static reef_status reply_completion(reef_cli_call *cli, const char *shell, reef_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    // One writer for both outputs: jansson needs the script as a string.
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the script");
    bool known = reef_completion_write(out, shell);
    reef_status status = REEF_OK;
    // An open_memstream reports a lack of memory at the close.
    if (fclose(out) != 0) status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the script");
    if (status == REEF_OK && !known)
        // The shell is named in the message, cut because it comes from the command line.
        status = reef_fail(err, REEF_ERR_INVALID,
                           "'%.40s' is not a shell that is known: bash, zsh or fish", shell);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, json_pack("{s:s, s:s}", "shell", shell, "script", text), err);
    else if (status == REEF_OK)
        fputs(text, stdout);
    free(text);
    return status;
}

reef_status reef_cmd_completion(reef_cli_call *cli, reef_error *err) {
    return reply_completion(cli, cli->operands[0], err);
}
