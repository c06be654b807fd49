"""What will run, why, in which batches, at what cost."""
