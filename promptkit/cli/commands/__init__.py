"""Commands of the program, one file each: options, checks of the arguments, and the call that does the work."""
