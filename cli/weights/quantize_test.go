package weights

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

func TestQuantize(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "mxfp8")
	var file bytes.Buffer
	if err := safetensors.Write(&file, []safetensors.Data{{Name: "up_proj.weight", Dtype: safetensors.BF16,
		Shape: []int64{2, 32}, Bytes: bytes.Repeat([]byte{0x12, 0x3c}, 64)}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "model.safetensors"), file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	output, err := clitest.Run(t, New, "weights", "quantize", from, "--to", to)
	if err != nil || !strings.Contains(output, "up_proj.weight        64  ") ||
		!strings.Contains(output, "MEAN ERROR") {
		t.Errorf("%v\n%s", err, output)
	}
	if report, err := os.ReadFile(filepath.Join(to, "mxfp8.json")); err != nil ||
		!strings.Contains(string(report), `"elements": 64`) {
		t.Errorf("%v, %s", err, report)
	}
	if _, err := clitest.Run(t, New, "weights", "quantize", from, "--to", to); err == nil ||
		!strings.Contains(err.Error(), "holds quantised weights already") {
		t.Errorf("again: %v", err)
	}
	if _, err := clitest.Run(t, New, "weights", "quantize", filepath.Join(from, "none"),
		"--to", t.TempDir()); err == nil {
		t.Error("a folder that is not there")
	}
}
