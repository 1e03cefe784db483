"""The live view as rows of a screen."""
