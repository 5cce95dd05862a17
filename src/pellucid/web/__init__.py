"""The web page: static files and how they are served."""
