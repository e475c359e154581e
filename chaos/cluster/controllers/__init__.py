"""Models of the controllers that turn jobs into pods and keep house: each a level-triggered loop."""
