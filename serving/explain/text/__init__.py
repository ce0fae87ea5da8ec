"""What a model of text looked at: components over tokens, in the document and over many of them."""
