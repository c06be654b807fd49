"""One short launch per stack, before the batches, and what it means."""
