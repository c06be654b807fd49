"""The launch files: what was measured, never rewritten."""
