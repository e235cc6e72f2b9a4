"""What a program is: variables, heads, rules, and how a Python function becomes rules."""
