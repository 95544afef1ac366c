package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/weights/mirror"
)

func TestMirror(t *testing.T) {
	t.Setenv("RONDO_METRICS_LISTEN", ":9100") // as the image has it, also for a mirror that ends
	r, far, to := clitest.NewRecorded(t), t.TempDir(), t.TempDir()
	for version := range int64(3) {
		publish(t, r, version+1)
	}
	for _, c := range []struct{ args, says, refused string }{
		{"show small --mirror " + far, "no version there, 3 published", ""},
		{"mirror small --to " + far + " --json", `"version":3,"bytes":`, ""},
		{"mirror small --versions 2 --to " + far, "mirrored version 2, ", ""},
		{"mirror small --to " + far, "mirrored version 3, 0 of ", ""},
		{"show small --mirror " + far, "not behind", ""},
		{"show small --json --mirror " + far, `"mirror":{"current":3,"newest":3,"versions":0,"seconds":0}`, ""},
		{"fetch small --to " + to + " --from " + t.TempDir() + "," + far, "of them nearby", ""},
		{"mirror none --to " + far, "", "nothing was published for policy none"},
		{"mirror small --to " + far + " --versions 0", "", "--versions 0"},
		{"mirror small", "", `--to is missing`},
		{"fetch small --to " + to + " --from ftp://london", "", "--from"},
	} {
		output, err := clitest.Run(t, New, append([]string{"weights", "--dir", r.Dir}, strings.Fields(c.args)...)...)
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %q", c.args, err, c.refused)
		case c.refused == "" && (err != nil || !strings.Contains(output, c.says)):
			t.Errorf("%s: %v\n%s\nwant %s", c.args, err, output, c.says)
		}
	}
	if _, err := os.Stat(filepath.Join(to, "v000003", "model.safetensors")); err != nil {
		t.Error(err)
	}
}

func TestMirrorMetrics(t *testing.T) {
	m := &mirroring{lag: mirror.Lag{Versions: 2, Seconds: 40}}
	registry := prometheus.NewRegistry()
	m.register(registry, nil)
	families, err := registry.Gather()
	if err != nil || len(families) != 2 || families[0].Metric[0].Gauge.GetValue() < 40 ||
		families[1].Metric[0].Gauge.GetValue() != 2 {
		t.Errorf("%v, %v", families, err)
	}
}
