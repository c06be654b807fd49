"""Ranks and hosts that the others wait for, and outliers among iterations."""
