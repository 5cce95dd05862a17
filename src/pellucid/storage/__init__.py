"""Files and folders written as a whole and verified by hash; files read line by line."""
