"""What is decided, what comes back, and the contracts that everything else keeps."""
