"""The HTTP door: routes.py is its table of contents, app.py what happens to every request."""
