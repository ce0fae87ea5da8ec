"""A bundle as a build context: everything that `docker build` needs to make the image that serves it."""
