"""What needs a provider's own SDK: one file per provider, and none of them is loaded by `import promptkit`."""
