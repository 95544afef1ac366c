package compose_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/s3"
	"github.com/rondo-rl/rondo/weights"
)

// publishing is a trainer: it publishes a folder, by a delta where a base is named.
const publishing = `
import sys, rondo
nats, store, ca, creds, folder, base = sys.argv[1:7]
with rondo.Client(nats=nats, store=store, ca=ca, creds=creds, wait=60, timeout=300) as client:
    print(client.publish_weights("my-model", folder, run="large", through_step=1, base=base or None))
`

// containerMemory is what compose.yaml gives a container of a service, in bytes.
const containerMemory = 1 << 30

// TestLargeCheckpoint: a checkpoint of RONDO_LARGE_CHECKPOINT GiB passes through containers
// of 1 GiB: it is uploaded by the Python client, verified by the publisher, fetched and
// mirrored; then one of its files changes, and goes up and comes down as a delta. On disk are
// at most 2.3 times its bytes.
func TestLargeCheckpoint(t *testing.T) {
	var gib int64
	if _, err := fmt.Sscan(os.Getenv("RONDO_LARGE_CHECKPOINT"), &gib); err != nil || gib < 1 {
		t.Skip("takes many minutes and 2.3 times the bytes on disk: set RONDO_LARGE_CHECKPOINT to a number of GiB, such as 20, beside RONDO_DOCKER=1")
	}
	needEngine(t)
	cache := cacheDir(t)
	useCompose(t, cache)
	standInImages(t, cache)
	s := newStack(t, map[string]string{"RONDO_PUBLISH": publish})
	w := &walk{stack: s, dir: t.TempDir(), tensor: largeTensor()}
	if err := os.Chmod(w.dir, 0o777); err != nil { // containers are ordinary users
		t.Fatal(err)
	}
	s.compose("up", "--detach", "--wait", "--wait-timeout", "1200", topology.Intake, topology.WeightPublisher)
	s.compose("run", "--rm", "--no-TTY", "keys", "auth", "user", "torch", "--role", "trainer", "--run", "large",
		"--feed", "trainer", "--policy", "my-model")
	s.compose("run", "--rm", "--no-TTY", "access")
	w.keys, w.admin = s.keysOf("torch"), s.keysOf(topology.Admin)

	files := shards(gib << 30)
	first, models := w.path("first"), w.path("models")
	for i, size := range files {
		w.timed("written", size, func() { w.write(first, i, size, false) })
	}
	w.timed("copied by cp and sync", files[0], func() {
		must(t, exec.Command("cp", "--reflink=never", filepath.Join(first, shardName(0)), w.path("copy")))
		must(t, exec.Command("sync", w.path("copy")))
	})
	w.remove("copy")
	w.publish(1, first, "", gib<<30)
	w.remove("first")
	w.container("fetched", gib<<30, "--volume", models+":/models", "rondo", "weights", "fetch", "my-model",
		"--to", "/models", "--json")
	for i, size := range files {
		w.check(filepath.Join(models, "v000001"), i, size, false)
	}

	// One file changes; the others are those that were fetched.
	second, last := w.path("second"), len(files)-1
	for i := range last {
		if err := os.Link(filepath.Join(models, "v000001", shardName(i)),
			filepath.Join(second, shardName(i))); err != nil {
			t.Fatal(err)
		}
	}
	w.write(second, last, files[last], true)
	w.publish(2, second, filepath.Join(models, "v000001"), files[last])
	w.remove("second")
	w.container("fetched by a delta", files[last], "--volume", models+":/models", "rondo", "weights", "fetch",
		"my-model", "--to", "/models", "--json")
	w.check(filepath.Join(models, "v000002"), last, files[last], true)
	w.remove("models")

	root := w.path("root")
	s.compose("cp", "keys:/auth/s3/.", root)
	for _, name := range []string{"root.access", "root.secret"} {
		if err := os.Chmod(filepath.Join(root, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.container("mirrored", gib<<30, "--volume", root+":/root-keys:ro", "--env",
		"AWS_ACCESS_KEY_ID_FILE=/root-keys/root.access", "--env", "AWS_SECRET_ACCESS_KEY_FILE=/root-keys/root.secret",
		"rondo", "weights", "mirror", "my-model", "--to",
		"s3://rondo-mirror?endpoint=http://s3:7070&create=true", "--json")
	for _, service := range []string{"nats", "s3", topology.Intake, topology.WeightPublisher} {
		w.weigh(service, s.container(service))
	}
}

// walk is the way of a large checkpoint.
type walk struct {
	*stack
	dir, keys, admin string
	tensor           [2][]byte // a part of the weights, before and after a step
}

// path is a folder or file of the walk; folders that containers write to are made.
func (w *walk) path(name string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if name == "copy" {
		return path
	}
	if err := errors.Join(os.MkdirAll(path, 0o777), os.Chmod(path, 0o777)); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *walk) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) timed(what string, size int64, work func()) {
	w.t.Helper()
	began := time.Now()
	work()
	took := time.Since(began).Seconds()
	w.t.Logf("%-22s %7.1f s, %6.0f MB/s", what, took, float64(size)/1e6/took)
}

// publish lets the Python client publish a folder, and tells how long that took, and of
// it the publisher's part.
func (w *walk) publish(version int, folder, base string, size int64) {
	w.t.Helper()
	python := os.Getenv("RONDO_PYTHON")
	if python == "" {
		python = "python3"
	}
	log, store := "nats://"+publish+":4222", "s3://rondo?endpoint=http://"+publish+":7070"
	c := exec.Command(python, "-c", publishing, log, store, filepath.Join(w.keys, "ca.crt"),
		filepath.Join(w.keys, "nats.creds"), folder, base)
	client, err := filepath.Abs(root + "/clients/python")
	if err != nil {
		w.t.Fatal(err)
	}
	c.Env = append(os.Environ(), "PYTHONPATH="+client, "AWS_ACCESS_KEY_ID="+read(w.t, w.keys, "s3.access"),
		"AWS_SECRET_ACCESS_KEY="+read(w.t, w.keys, "s3.secret"))
	w.timed(fmt.Sprintf("version %d published", version), size, func() {
		if said := must(w.t, c); said != fmt.Sprint(version) {
			w.t.Fatalf("published as %q, want %d", said, version)
		}
	})
	// With a base this counts pages of mapped files, too, which the kernel takes
	// back when it needs them.
	if peak := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; peak > containerMemory && base == "" {
		w.t.Errorf("the trainer has %d MiB of memory", peak>>20)
	} else {
		w.t.Logf("the trainer has at most %d MiB", peak>>20)
	}
	nc, _ := w.connect(w.admin)
	objects, err := s3.Open(w.t.Context(), bucket(read(w.t, w.admin, "s3.access"), read(w.t, w.admin, "s3.secret")))
	if err != nil {
		w.t.Fatal(err)
	}
	defer objects.Close()
	catalogue, err := eventlog.New(nc, objects)
	if err != nil {
		w.t.Fatal(err)
	}
	submitted, err := catalogue.LastOfType(w.t.Context(), events.Catalogue, events.WeightsSubmittedType, "my-model")
	if err != nil {
		w.t.Fatal(err)
	}
	published, err := catalogue.LastOfType(w.t.Context(), events.Catalogue, events.WeightsPublishedType, "my-model")
	if err != nil {
		w.t.Fatal(err)
	}
	took := published.Time.Sub(submitted.Time).Seconds()
	w.t.Logf("of that the publisher  %7.1f s, %6.0f MB/s", took, float64(size)/1e6/took)
	d, err := weights.FetchDelta(w.t.Context(), objects, "my-model", int64(version))
	if version > 1 && err != nil {
		w.t.Errorf("version %d has no delta: %v", version, err)
	} else if err == nil {
		w.t.Logf("the delta has %d bytes, %.2f %% of the files that changed", d.Size, 100*float64(d.Size)/float64(size))
	}
}

// container runs a command in a container as compose.yaml makes it, and tells what it took.
func (w *walk) container(what string, size int64, args ...string) {
	w.t.Helper()
	name := w.env[len(w.env)-1][len("COMPOSE_PROJECT_NAME="):] + "-" + strings.ReplaceAll(what, " ", "-")
	c := w.command(append([]string{"run", "--no-TTY", "--name", name}, args...)...)
	ended := make(chan error, 1)
	var out string
	w.timed(what, size, func() {
		go func() {
			var err error
			out, err = output(c)
			ended <- err
		}()
		for most := int64(0); ; {
			select {
			case err := <-ended:
				if err != nil {
					w.t.Fatal(err)
				}
				w.t.Logf("%s: the container has at most %d MiB", what, most>>20)
				return
			case <-time.After(time.Second):
				if pid, err := output(docker("container", "inspect", "--format", "{{.State.Pid}}", name)); err == nil {
					most = max(most, residentPeak(pid))
				}
			}
		}
	})
	w.t.Logf("it says %s", out)
	killed := must(w.t, docker("container", "inspect", "--format", "{{.HostConfig.Memory}} {{.State.OOMKilled}}", name))
	if want := fmt.Sprintf("%d false", int64(containerMemory)); killed != want {
		w.t.Errorf("memory and whether it was killed for it: %s, want %s", killed, want)
	}
	must(w.t, docker("container", "rm", name))
}

// weigh looks at what a service took.
func (w *walk) weigh(service, container string) {
	w.t.Helper()
	said := must(w.t, docker("container", "inspect", "--format",
		"{{.State.Pid}} {{.HostConfig.Memory}} {{.State.OOMKilled}} {{.RestartCount}}", container))
	fields := strings.Fields(said)
	w.t.Logf("%-16s at most %d MiB of %s bytes", service, residentPeak(fields[0])>>20, fields[1])
	if fields[2] != "false" || fields[3] != "0" {
		w.t.Errorf("%s was killed or started again: %s", service, said)
	}
}

// residentPeak is the most resident memory that a process had, in bytes; 0 where it is gone.
func residentPeak(pid string) (bytes int64) {
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		return 0
	}
	return bytes << 10
}

// shards are the sizes of the files: one of a quarter, as objects above 4 GiB are, and
// others of 1.5 GiB at most.
func shards(total int64) []int64 {
	sizes := []int64{total / 4}
	for left := total - total/4; left > 0; left -= sizes[len(sizes)-1] {
		sizes = append(sizes, min(left, 3<<29))
	}
	return sizes
}

func shardName(i int) string { return fmt.Sprintf("model-%05d.safetensors", i+1) }

// largeTensor makes 64 MiB of bf16, and the same after a step at a learning rate of 1e-6.
func largeTensor() (made [2][]byte) {
	r := rand.New(rand.NewPCG(1, 1))
	round := func(v float32) uint16 { bits := math.Float32bits(v); return uint16((bits + 0x7fff + bits>>16&1) >> 16) }
	made[0], made[1] = make([]byte, 64<<20), make([]byte, 64<<20)
	for i := 0; i < len(made[0]); i += 2 {
		master := float32(r.NormFloat64() * 0.02)
		binary.LittleEndian.PutUint16(made[0][i:], round(master))
		binary.LittleEndian.PutUint16(made[1][i:], round(master-float32(1e-6*0.5*r.NormFloat64())))
	}
	return made
}

// shard gives a file's bytes: tensors of 64 MiB whose names have the file's number, and
// behind them what is left.
func (w *walk) shard(i int, size int64, stepped bool) io.Reader {
	data, entries := w.tensor[0], map[string]any{}
	if stepped {
		data = w.tensor[1]
	}
	var parts []io.Reader
	for at := int64(0); at < size; {
		n := min(size-at, int64(len(data)))
		entries[fmt.Sprintf("model.layers.%04d.%04d.weight", i, len(parts))] = map[string]any{"dtype": "BF16",
			"shape": []int64{n / 2}, "data_offsets": []int64{at, at + n}}
		parts, at = append(parts, bytes.NewReader(data[:n])), at+n
	}
	text, err := json.Marshal(entries)
	if err != nil {
		w.t.Fatal(err)
	}
	text = append(text, bytes.Repeat([]byte(" "), (8-len(text)%8)%8)...)
	head := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	return io.MultiReader(slices.Insert(parts, 0, io.Reader(bytes.NewReader(head)))...)
}

func (w *walk) write(folder string, i int, size int64, stepped bool) {
	w.t.Helper()
	file, err := os.Create(filepath.Join(folder, shardName(i)))
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = io.Copy(file, w.shard(i, size, stepped))
	if err := errors.Join(err, file.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// check compares a file with what was written.
func (w *walk) check(folder string, i int, size int64, stepped bool) {
	w.t.Helper()
	file, err := os.Open(filepath.Join(folder, shardName(i)))
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	got, want, wanted := make([]byte, 1<<20), make([]byte, 1<<20), w.shard(i, size, stepped)
	for {
		n, err := io.ReadFull(wanted, want)
		m, errGot := io.ReadFull(file, got)
		if n != m || !bytes.Equal(got[:m], want[:n]) {
			w.t.Fatalf("%s has other bytes (%v, %v)", file.Name(), err, errGot)
		}
		if err != nil {
			return
		}
	}
}
