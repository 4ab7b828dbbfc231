"""The drawn explanations of the course, one module for each topic."""

# The pictures that the build writes to images/: name, and the function that draws it.
EXPORTS = {
    "three_bars": "course_lib.diagrams.waterfall:distilbert",
    "three_optimizers": "course_lib.diagrams.kept:three_optimizers",
    "trade_off": "course_lib.diagrams.trade_off:trade_off",
    "adam_build_up": "course_lib.diagrams.build_up:adam_build_up",
    "factorization": "course_lib.diagrams.factorization:four_steps",
    "adafactor_pipeline": "course_lib.diagrams.pipeline:adafactor_pipeline",
    "trainer_accelerator": "course_lib.diagrams.trainer_accelerator:trainer_accelerator",
    "code_points": "course_lib.diagrams.code_points:code_points",
    "cheat_sheet": "course_lib.diagrams.cheat_sheet:draw",
}
