package collector

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/tests/program"
)

// Real starts the OpenTelemetry project's own collector, which passes on to c what it is sent at
// the addresses that Real gives. Without the modules that it is built from the test is skipped, or
// fails with RONDO_REQUIRE_ALL=1.
func (c *Collector) Real(t *testing.T) (url string) {
	t.Helper()
	binary, err := storagetest.Tool("otelcol")
	if err != nil {
		program.Missing(t, "%v", err)
	}
	port := natstest.FreePorts(t, 1)[0]
	config := fmt.Sprintf(`yaml:{receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}}}},
exporters: {otlp_http: {endpoint: %q}},
service: {pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}}}`, port, c.HTTP)
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
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}
