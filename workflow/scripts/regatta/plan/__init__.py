"""The plan: what will run, why, in which batches, at what cost."""
