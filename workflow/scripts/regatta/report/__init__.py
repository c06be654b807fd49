"""From tables to a page."""
