"""What happens inside one allocation: launches, their deadlines, their ends."""
