"""`promptkit chat`: a small agent over the files of a folder."""
