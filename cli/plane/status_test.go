package plane_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/plane"
)

// TestStatusServesTheProcess: the address of the metrics has those of the process and its profiles,
// and not how it was started.
func TestStatusServesTheProcess(t *testing.T) {
	handler := plane.StatusHandler(plane.NewMetrics(), nil)
	for path, want := range map[string]string{
		"/metrics":                       "process_open_fds",
		"/debug/pprof/goroutine?debug=1": "goroutine profile:",
		"/debug/pprof/heap?debug=1":      "heap profile:",
		"/debug/pprof/cmdline":           "",
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if found := w.Code == http.StatusOK; found != (want != "") || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s answers %d, without %q: %.100s", path, w.Code, want, w.Body)
		}
	}
}
