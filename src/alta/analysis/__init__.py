"""What can be said of programs and models: that they agree, and what data pins down."""
