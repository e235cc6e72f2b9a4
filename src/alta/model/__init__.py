"""The Transformer: arrays only, which know no program."""
