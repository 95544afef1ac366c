package app

import (
	"log/slog"
	"os"
)

// Logger writes to standard error: warnings only for commands that show progress of their own.
func Logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
