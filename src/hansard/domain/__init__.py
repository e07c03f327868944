"""Pure values and rules: no input, no output, no clock, no database."""
