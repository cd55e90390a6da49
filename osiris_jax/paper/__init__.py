"""The published protocol, where the paper's own code departs from the definitions."""
