"""Models fitted to measurements, and when they are rejected."""
