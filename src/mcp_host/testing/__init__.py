"""What an agent host needs to test itself without a network: servers, peers and models."""
