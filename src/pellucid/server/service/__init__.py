"""What stands behind the routes: models, queue, telemetry."""
