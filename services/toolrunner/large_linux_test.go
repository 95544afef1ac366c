package toolrunner

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// largeMost is the memory that a service may take beyond what it has before its first turn, in
// bytes, whatever a workspace's size.
const largeMost = 256 << 20

// TestLargeWorkspaceMoves: over a snapshot of RONDO_LARGE_WORKSPACE MiB a rollout writes as much,
// on a disk of four times that. The change is stored, another runner goes on with the rollout and
// finds all of it, and neither its sandbox nor the service takes more memory than a small one's.
func TestLargeWorkspaceMoves(t *testing.T) {
	var size int
	if _, err := fmt.Sscan(os.Getenv("RONDO_LARGE_WORKSPACE"), &size); err != nil {
		t.Skip("takes minutes, and seven times the bytes on disk: set RONDO_LARGE_WORKSPACE to a number of MiB, such as 5120")
	}
	folder := t.TempDir()
	sandboxtest.RequireDisk(t, folder)
	log := natstest.LogWithDisk(t)
	m := &meter{t: t}
	m.begin()
	snapshot := largeSnapshot(t, log.Store(), size)
	m.step("snapshot packed")
	open(t, log, "r", func(cfg *runfile.RunConfig) {
		cfg.Limits.Disk, cfg.Tools.CommandTimeout = runfile.Size(size)<<22, runfile.Duration(time.Hour)
		cfg.Tasks[0].DiskMB, cfg.Tasks[0].MemoryMB, cfg.Tasks[0].Snapshot = 4*size, 256, snapshot
	})
	needs := runfile.Needs{DiskMB: 4 * size, MemoryMB: 256}
	m.idle = peak(t)
	sums := "for f in s*/*; do sha256sum <$f; done"
	var answers []string
	for n, command := range []string{
		fmt.Sprintf("mkdir s-new && for i in $(seq %d); do dd if=/dev/urandom of=s-new/f$i bs=1M count=64 status=none || exit 1; done; %s",
			size/64, sums), sums,
	} {
		s, _ := newServiceOnly(t, log, func(o *Options) { o.Disk = folder }) // another one each time
		turn(t, log, "r", n, runfile.PoolRoute(poolRoute, needs), shell("c", command))
		m.begin()
		fact := handle(t, s, log)[0]
		m.step(fmt.Sprintf("turn %d", n))
		done := servicetest.Data[events.ToolsCompleted](t, fact)
		if done.Lost != "" || done.Results[0].Error {
			t.Fatalf("turn %d: %+v", n, done)
		}
		t.Logf("turn %d: the command took %.1f s", n, done.Results[0].DurationMS/1000)
		if _, _, err := log.Appender.Append(t.Context(), fact); err != nil {
			t.Fatal(err)
		}
		for _, box := range s.held.boxes {
			if used := box.MemoryBytes(); used > 256<<20 {
				t.Errorf("turn %d: the sandbox has %d MiB of memory, of 256", n, used>>20)
			}
		}
		answers = append(answers, done.Results[0].Content)
		s.held.closeAll()
	}
	if lines := strings.Count(answers[0], "  -\n"); lines < 2*(size/64) || answers[0] != answers[1] {
		t.Errorf("%d sums, want %d; the second runner has the same: %v", lines, 2*(size/64), answers[0] == answers[1])
	}
}

// largeSnapshot stores a snapshot of files of 64 MiB, which do not pack.
func largeSnapshot(t *testing.T, store storage.Store, size int) storage.Ref {
	t.Helper()
	dir := t.TempDir()
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, 64<<20)
	if err := os.Mkdir(filepath.Join(dir, "s"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range size / 64 {
		_, _ = random.Read(data) // never an error
		if err := os.WriteFile(filepath.Join(dir, "s", fmt.Sprint("f", i)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packed, err := os.Create(filepath.Join(t.TempDir(), "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	if err := errors.Join(sandbox.PackTo(packed, os.DirFS(dir)), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	info, err := packed.Stat()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := storage.PutBlobFrom(t.Context(), store, packed, info.Size())
	if err := errors.Join(err, os.Remove(packed.Name())); err != nil {
		t.Fatal(err)
	}
	return ref
}

// meter tells what steps took.
type meter struct {
	t     *testing.T
	began time.Time
	idle  int64
}

func (m *meter) begin() {
	m.began = time.Now()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak begins anew
		m.t.Fatal(err)
	}
}

func (m *meter) step(what string) {
	m.t.Helper()
	most := peak(m.t)
	m.t.Logf("%-16s %6.1f s, this process has at most %d MiB", what, time.Since(m.began).Seconds(), most>>20)
	if m.idle > 0 && most > m.idle+largeMost {
		m.t.Errorf("%s: %d MiB of memory, %d before the first turn (limit %d more)", what, most>>20,
			m.idle>>20, largeMost>>20)
	}
}

// peak is this process's resident memory at its most, in bytes.
func peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib := int64(0)
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
