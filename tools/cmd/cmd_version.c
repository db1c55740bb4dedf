// reef version: which program this is and which pools it reads.
#include "commands.h"

const reef_cli_manual reef_version_manual = {
    .about =
        "The version of the program, the pool format it reads and writes, and the kernels in use.",
    .options = NULL,
    .example = "reef version --json",
};

reef_status reef_cmd_version(reef_cli_call *cli, reef_error *err) {
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:s, s:I, s:s, s:s}", "version", REEF_VERSION_TEXT,
                                        "format", (json_int_t)REEF_FORMAT_VERSION, "kernels",
                                        reef_kernels_name(), "blas", reef_gemm_name()),
                              err);
    printf("reef %s, pool format %u, kernels %s, matrix products %s\n", REEF_VERSION_TEXT,
           REEF_FORMAT_VERSION, reef_kernels_name(), reef_gemm_name());
    if (reef_gemm_advice() != NULL) fprintf(stderr, "reef: warning: %s\n", reef_gemm_advice());
    return REEF_OK;
}
