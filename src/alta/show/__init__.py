"""What people look at: text for terminals, HTML for notebooks, figures."""
