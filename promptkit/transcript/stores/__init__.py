"""Where transcripts are kept: files of JSON lines, databases, object storage, memory."""
