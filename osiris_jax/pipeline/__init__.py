"""The one composition: evidence -> keep -> values."""
