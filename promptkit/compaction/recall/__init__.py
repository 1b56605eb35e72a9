"""What was dropped is found again: passages of the transcript, and the tool `recall`."""
