"""What Regatta asks of Slurm, and what it is told."""
