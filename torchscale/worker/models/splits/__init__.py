"""How models are split over tensor-parallel and context-parallel devices."""
