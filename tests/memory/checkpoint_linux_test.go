// Package memory measures what processes take of the machine's memory. It is tested without the
// race detector, whose own notes of each byte are three times as large as what it watches.
package memory

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/fetch"
)

// memoryStep tells a process of this test what to do.
const memoryStep = "RONDO_TEST_MEMORY_STEP"

// TestMemoryOfALargeCheckpoint: the process that uploads a checkpoint, the publisher and the
// side-car each take no more memory for a large one than the pieces that they hold. Each runs in a
// process of its own, whose peak the kernel tells.
func TestMemoryOfALargeCheckpoint(t *testing.T) {
	if step := os.Getenv(memoryStep); step != "" {
		memoryChild(t, step)
		return
	}
	const large = 256 << 20
	steps := []string{"upload", "publish", "fetch"}
	// A store's writer may hold 64 MiB. The side-car reads eight pieces of 8 MiB at once, and as
	// much again waits to be collected.
	most := map[string]int64{"upload": 96 << 20, "publish": 96 << 20, "fetch": 2*64<<20 + 32<<20}
	peaks := map[string][]int64{}
	for _, size := range []int64{1 << 20, large} {
		at := t.TempDir()
		writeCheckpoint(t, filepath.Join(at, "model.safetensors"), size)
		for _, step := range steps {
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryOfALargeCheckpoint$")
			child.Dir, child.Env = at, append(os.Environ(), memoryStep+"="+step, "GOMEMLIMIT=160MiB")
			if output, err := child.CombinedOutput(); err != nil {
				t.Fatalf("%s %d bytes: %v\n%s", step, size, err, output)
			}
			peaks[step] = append(peaks[step], child.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10)
		}
		if info, err := os.Stat(filepath.Join(at, "folder", "current", "model.safetensors")); err != nil ||
			info.Size() < size {
			t.Errorf("what was fetched: %v, %v", info, err)
		}
	}
	for _, step := range steps {
		t.Logf("%s: %d MiB for 1 MiB, %d MiB for %d MiB", step, peaks[step][0]>>20, peaks[step][1]>>20, large>>20)
		if grown := peaks[step][1] - peaks[step][0]; grown > most[step] {
			t.Errorf("%s takes %d MiB more for a checkpoint of %d MiB (limit %d)", step, grown>>20,
				large>>20, most[step]>>20)
		}
	}
}

// writeCheckpoint writes one tensor of zeros, which take no place on the disk.
func writeCheckpoint(t *testing.T, name string, size int64) {
	t.Helper()
	header, err := json.Marshal(map[string]any{"w": map[string]any{"dtype": "U8", "shape": []int64{size},
		"data_offsets": []int64{0, size}}})
	if err != nil {
		t.Fatal(err)
	}
	header = append(header, strings.Repeat(" ", (8-len(header)%8)%8)...)
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, int64(len(data))+size); err != nil {
		t.Fatal(err)
	}
}

// memoryChild does one step in the folder of the checkpoint.
func memoryChild(t *testing.T, step string) {
	store, err := dir.Open("store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	switch step {
	case "upload":
		file, err := os.Open("model.safetensors")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		ref, err := weights.Upload(t.Context(), store, "p", file, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(ref)
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile("ref.json", text, 0o600)
		if err != nil {
			t.Fatal(err)
		}
	case "publish":
		text, err := os.ReadFile("ref.json")
		if err != nil {
			t.Fatal(err)
		}
		var ref storage.Ref
		if err := json.Unmarshal(text, &ref); err != nil {
			t.Fatal(err)
		}
		if _, err := weights.PublishFrom(t.Context(), store, "p", 1,
			[]weights.File{{Name: "model.safetensors", Ref: ref}}, nil); err != nil {
			t.Fatal(err)
		}
	case "fetch":
		folder, err := fetch.Open("folder", "p")
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		if _, err := folder.Fetch(t.Context(), store, 1, "", nil); err != nil {
			t.Fatal(err)
		}
	}
}
