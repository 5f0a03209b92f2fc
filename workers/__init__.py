"""Worker processes: Celery's doors, the desk behind them, and the engines that compute."""
