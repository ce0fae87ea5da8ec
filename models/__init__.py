"""What is trained: attention modules, the classifier that takes any of them, checkpoints, the small trainer, the zoo.

Importing this package imports no torch; its modules do, except `gaussport.models.image`.
"""
