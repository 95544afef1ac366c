package auth

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// TestSidecarAsOutsider: the side-car of an inference server needs no more than its role, follows
// its policy, and ends when it is told to.
func TestSidecarAsOutsider(t *testing.T) {
	t.Parallel()
	dir, objects := initKeys(t), t.TempDir()
	s := serve(t, dir, auth.ConfigFile)
	admin := adminLogIn(t, s, dir, objects, "")
	servicetest.OpenRun(t, admin, run, servicetest.Config("fix"))
	intakeLog, err := eventlog.New(connect(t, s, creds(dir, topology.Intake)).Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	env := servicetest.Env(t, intakeLog)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	command(t, "auth", "user", "engine", "--out", dir, "--role", "inference", "--run", run, "--policy", "small")
	publish := func(version int64) {
		t.Helper()
		var file bytes.Buffer
		if err := safetensors.Write(&file, []safetensors.Data{safetensors.NewF32("w", []int64{1},
			[]float32{float32(version)})}, nil); err != nil {
			t.Fatal(err)
		}
		published, err := weights.Publish(t.Context(), admin.Store(), "small", version,
			weights.Content{Name: "model.safetensors", Data: file.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		servicetest.Append(t, admin, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType,
			"small", events.Ordinal(version),
			events.WeightsPublished{Policy: "small", Version: version, Run: run, Manifest: published.Ref}))
	}
	publish(1)
	healthy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "{}")
	}))
	defer healthy.Close()
	to := t.TempDir()
	sidecar := exec.CommandContext(t.Context(), rondo, "weights", "fetch", "small", "--to", to, "--follow",
		"--nats", s.ClientURL(), "--store", objects,
		"--nats-creds", creds(dir, "engine"), "--engine", "command", "--exec", "/bin/true",
		"--engine-url", healthy.URL, "--json")
	var said bytes.Buffer
	sidecar.Stdout, sidecar.Stderr = &said, &said
	if err := sidecar.Start(); err != nil {
		t.Fatal(err)
	}
	for version := int64(1); version <= 3; version++ {
		if version > 1 {
			publish(version)
		}
		natstest.Eventually(t, fmt.Sprintf("version %d is activated", version), func() bool {
			e, err := admin.LastOfType(t.Context(), events.Catalogue, events.WeightsActivatedType, "small")
			if err != nil {
				return false
			}
			activated, err := events.Data[events.WeightsActivated](e)
			return err == nil && activated.Version == version && !activated.Lost &&
				activated.Replica == healthy.URL+"/v1"
		})
	}
	if err := sidecar.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sidecar.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if target, _ := os.Readlink(filepath.Join(to, "current")); target != "v000003" || err != nil ||
		strings.Contains(said.String(), `"event":"failed"`) {
		t.Errorf("ended with %v at %s, and said\n%s", err, target, said.String())
	}
}
