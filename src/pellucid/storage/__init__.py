"""Folders that appear whole, with hashes; files read line by line."""
