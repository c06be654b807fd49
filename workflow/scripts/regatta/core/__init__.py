"""Code that every package uses: errors, files, text, statistics, verdicts. Imports nothing of Regatta."""
