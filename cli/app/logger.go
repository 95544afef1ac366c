package app

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/rondo-rl/rondo/pipeline/tracing"
	"github.com/rondo-rl/rondo/wording"
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

// Logger writes to standard error: warnings only for commands that show progress of their own.
// Lines about a rollout name its run and its trace.
func Logger(level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: clean}
	var h slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if jsonLogs.Load() {
		h = slog.NewJSONHandler(os.Stderr, options)
	}
	return slog.New(tracing.LogHandler(h))
}

// clean keeps the credentials of this process out of a line.
func clean(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(wording.Clean(v))
	case error:
		if text := v.Error(); wording.Clean(text) != text {
			a.Value = slog.StringValue(wording.Clean(text))
		}
	}
	return a
}

// secretVariables hold credentials, or name with _FILE behind them the file of one.
var secretVariables = []string{"RONDO_ENDPOINT_API_KEY", "RONDO_DASHBOARD_TOKEN", "RONDO_GATEWAY_KEY",
	"RONDO_EMBEDDINGS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}

// concealCredentials lets no text of this process have the credentials that its environment gives
// it, nor the keys in its files for the log.
func concealCredentials(files ...string) {
	for _, name := range secretVariables {
		wording.Conceal(os.Getenv(name), contentOf(os.Getenv(name+"_FILE")))
	}
	for _, file := range files {
		for line := range strings.Lines(contentOf(file)) {
			if line = strings.TrimSpace(line); !strings.ContainsAny(line, " -") || len(line) > longLine {
				wording.Conceal(line)
			}
		}
	}
}

// contentOf is a file's text; "" for none, and where it cannot be read, which is for
// those to say who need it.
func contentOf(file string) string {
	if file == "" {
		return ""
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(text)
}

// longLine is longer than the words around the keys in a file of credentials.
const longLine = 80
