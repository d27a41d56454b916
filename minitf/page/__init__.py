"""A page that shows how a line is translated, in one HTML file."""
