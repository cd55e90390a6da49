"""What every room stands on: masked sums, segments, options, files, texts."""
