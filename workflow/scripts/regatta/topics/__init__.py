"""What the report says, a module or folder for each topic: tables, figures, findings."""
