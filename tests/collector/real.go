package collector

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/program"
)

// Real starts the OpenTelemetry project's own collector, which passes on to c what it is sent at the addresses that Real gives. Without the modules that it is built
// from the test is skipped, or fails with RONDO_REQUIRE_ALL=1.
func (c *Collector) Real(t *testing.T) (http, grpc string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "otelcol")
	_, file, _, _ := runtime.Caller(0)
	build := exec.Command("go", "build", "-C", filepath.Join(filepath.Dir(file), "..", "..", "tools", "otelcol"), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		program.Missing(t, "build tools/otelcol: %v\n%s", err, out)
	}
	ports := natstest.FreePorts(t, 2)
	config := fmt.Sprintf(`yaml:{receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}, grpc: {endpoint: "127.0.0.1:%d"}}}},
exporters: {otlp_http: {endpoint: %q}},
service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}}}`, ports[0], ports[1], c.HTTP)
	server := program.Start(t, exec.Command(binary, "--config", config))
	program.Eventually(t, func() error {
		select {
		case <-server.Done:
			t.Fatalf("the collector has ended:\n%s", server)
		default:
		}
		if !strings.Contains(server.String(), "Everything is ready") {
			return fmt.Errorf("the collector is not ready:\n%s", server)
		}
		return nil
	})
	return fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
}
