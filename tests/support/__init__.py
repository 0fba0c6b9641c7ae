"""What tests share: documents, runs, a loopback server."""
