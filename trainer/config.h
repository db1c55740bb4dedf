// Where the configuration lives in a pool; private to the trainer.
#ifndef REEF_CONFIG_INSIDE_H
#define REEF_CONFIG_INSIDE_H

// Name of the `meta` record that reef_pool_init writes and reef_config_read reads: the JSON text of
// reef_config_format, dtype REEF_JSON, without a final zero.
#define REEF_CONFIG_RECORD "config"

#endif
