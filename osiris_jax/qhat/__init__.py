"""Q-hat: action values fitted to the data, for relevance and for doubly robust estimators."""
