"""What is kept between requests and processes, and where."""
