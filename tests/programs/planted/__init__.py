"""Programs of other people's styles, each right as it stands and wrong with one bug switched on by its name."""
