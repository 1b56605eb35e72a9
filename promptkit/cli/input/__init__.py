"""Read what a command line names: parameters, props, components, templates, models."""
