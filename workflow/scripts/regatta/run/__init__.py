"""Code that runs inside one allocation: launches, their deadlines, and why they end."""
