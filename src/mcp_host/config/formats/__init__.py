"""The formats of files: their text, its data, and changing one member of it; and files of environment variables."""
