"""The file formats in which the public sets are handed out, each read without trusting it."""
