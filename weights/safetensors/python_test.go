package safetensors_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/weights/safetensors"
)

// reader prints what the reference implementation reads of a file, or that it refuses it.
const reader = `
import json, sys
import safetensors
out = []
for path in sys.argv[1:]:
    with open(path, "rb") as f:
        data = f.read()
    try:
        tensors = {name: [t["shape"], bytes(t["data"]).hex()] for name, t in safetensors.deserialize(data)}
    except safetensors.SafetensorError as error:
        tensors = None
    out.append(tensors)
print(json.dumps(out))
`

// TestReferenceReads: the format's own implementation reads what this package writes, of every
// type, and refuses what this package refuses.
func TestReferenceReads(t *testing.T) {
	python := os.Getenv("RONDO_PYTHON")
	if python == "" {
		python = "python3"
	}
	if output, err := exec.Command(python, "-c", "import safetensors").CombinedOutput(); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("%s has no safetensors: %v\n%s", python, err, output)
		}
		t.Skipf("%s has no safetensors (pip install safetensors, or set RONDO_PYTHON): %v", python, err)
	}
	widths := map[safetensors.Dtype]int{ // bytes of 8 elements
		"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16,
		"I16": 16, "F16": 16, "BF16": 16,
		"U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4,
		"F6_E2M3": 6, "F6_E3M2": 6,
	}
	var tensors []safetensors.Data
	want := map[string]string{}
	for dtype, size := range widths {
		data := bytes.Repeat([]byte{1}, size)
		tensors = append(tensors, safetensors.Data{Name: "t." + string(dtype), Dtype: dtype,
			Shape: []int64{2, 4}, Bytes: data})
		want["t."+string(dtype)] = hex.EncodeToString(data)
	}
	var written bytes.Buffer
	if err := safetensors.Write(&written, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"-c", reader}
	for name, data := range map[string][]byte{
		"0": written.Bytes(),
		"1": written.Bytes()[:written.Len()-1],
		"2": file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
		"3": file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"0", "1", "2", "3"} {
		args = append(args, filepath.Join(dir, name))
	}
	output, err := exec.Command(python, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string][2]any
	if err := json.Unmarshal(output, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || len(got[0]) != len(want) || got[1] != nil || got[2] != nil || got[3] != nil {
		t.Fatalf("the reference reads %d tensors of %d, and of damaged files %v", len(got[0]), len(want), got[1:])
	}
	for name, data := range want {
		if got[0][name][1] != data {
			t.Errorf("tensor %s has the bytes %v", name, got[0][name][1])
		}
	}
}
