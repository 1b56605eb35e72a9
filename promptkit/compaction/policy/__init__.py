"""Policies that decide when a conversation is compacted, and the measurements that they decide by."""
