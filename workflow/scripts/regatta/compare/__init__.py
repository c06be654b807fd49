"""Compare campaigns, and evaluate the gate."""
