"""What a prompt costs and loses at many budgets, as numbers that can be kept, drawn and held against an earlier run."""
