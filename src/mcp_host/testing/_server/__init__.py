"""What a test server does with a request, however it arrives."""
