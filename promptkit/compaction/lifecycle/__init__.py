"""Operations on whole conversations: switching branches, handoff, recall and reset."""
