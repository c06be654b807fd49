"""The report's content, one module or folder per topic: tables, figures, findings."""
