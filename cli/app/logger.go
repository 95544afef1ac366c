package app

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/rondo-rl/rondo/pipeline/tracing"
)

// Formats of --log-format.
const (
	logText = "text"
	logJSON = "json"
)

// jsonLogs is of the process, as standard error is.
var jsonLogs atomic.Bool

// setLogFormat chooses how lines are logged from now on.
func setLogFormat(name string) error {
	if name != logText && name != logJSON {
		return fmt.Errorf("--log-format %q: use %s or %s", name, logText, logJSON)
	}
	jsonLogs.Store(name == logJSON)
	return nil
}

// Logger writes to standard error: warnings only for commands that show progress of their own. Lines about a rollout name its run and its trace.
func Logger(level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if jsonLogs.Load() {
		h = slog.NewJSONHandler(os.Stderr, options)
	}
	return slog.New(tracing.LogHandler(h))
}
