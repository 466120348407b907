"""An async client and host SDK for the Model Context Protocol, made for sampling with tools."""
