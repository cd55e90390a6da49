"""What a user sees of the package, as it was taken and as it is."""
