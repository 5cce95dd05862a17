"""Small programs that use Pellucid, to run and to read."""
