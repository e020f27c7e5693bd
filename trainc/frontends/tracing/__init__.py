"""What the frontends trace and compile on demand; imported only when something is compiled."""
