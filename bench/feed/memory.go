package feed

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
)

// backlogTokens is the length of the trajectories that wait. Their bytes are in the store: a longer
// one takes no more memory.
const backlogTokens = 1024

// memory measures a feeder, in a process of its own, that has folded a backlog of groups and
// whose trainer does not come.
func memory(ctx context.Context, o Options, groups int) (m Memory, err error) {
	m.Groups = groups
	options := embedded.Options{SyncInterval: 100 * time.Millisecond, Listen: "127.0.0.1:0", Token: rand.Text()}
	err = withPlane(ctx, o.Dir, options, groupSize, func(p plane) error {
		shared := newContent(1).trajectory(run, "", "", backlogTokens) // the feeder does not look into files that wait
		rollouts := make([]*rollout, 0, groups*groupSize)
		for g := range groups {
			group := events.GroupID(int64(g + 1))
			for i := range groupSize {
				t := *shared
				t.Group, t.Rollout = group, events.RolloutID(group, i)
				rollouts = append(rollouts, &rollout{id: t.Rollout, group: group, trajectory: &t})
			}
		}
		if err := errors.Join(p.start(ctx, rollouts), each(ctx, rollouts, p.push),
			p.complete(ctx, rollouts)); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		return m.measure(ctx, o, p)
	})
	return m, err
}

// measure starts a feeder and looks at its memory when it has folded the backlog: then it answers
// the last fact with a batch.
func (m *Memory) measure(ctx context.Context, o Options, p plane) error {
	var said bytes.Buffer
	feeder := exec.CommandContext(ctx, o.Rondo, "service", "trainerfeeder", "--store", p.objects,
		"--dir", filepath.Join(filepath.Dir(p.objects), "feeder"), "--quiet")
	feeder.Env = append(os.Environ(), "RONDO_NATS="+p.server.URL()) // arguments are seen by other users
	feeder.Stderr = &said
	feeder.Cancel = func() error { return feeder.Process.Signal(syscall.SIGTERM) }
	if err := feeder.Start(); err != nil {
		return err
	}
	defer func() { _ = feeder.Process.Signal(syscall.SIGTERM); _ = feeder.Wait() }()
	if _, err := p.batches(ctx, 2); err != nil {
		return fmt.Errorf("wait for the feeder: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var err error
	if m.FeederMiB, err = resident(feeder.Process.Pid); err != nil {
		return err
	}
	debug.FreeOSMemory() // the server's memory, not what the preparation left
	m.ServerMiB, err = resident(os.Getpid())
	return err
}

// resident is the resident memory of a process, in MiB.
func resident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("resident memory: the system does not report it")
}
